//! The server's thread: takes connections, bounds them, and ends with its handle.
//!
//! It is a thread of its own so that no client, however slow, can hold up the control thread. What clients send is read with time
//! limits, and too many connections push the idlest out.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::AbortHandle;

use super::RestOptions;
use super::audit::Audit;
use super::auth::Token;
use super::desk::{Desk, Figures, jid};
use super::dispatch::router;
use super::seats::{SeatId, Seats};
use super::triggers::{Triggers, owes_an_outcome};
use crate::config::Config;
use crate::error::{Error, ErrorKind, Result};
use crate::runtime::JobEndpoint;

/// The longest head of a request.
const HEAD_BYTES_MAX: usize = 16 << 10;
/// The most headers of a request.
const HEADERS_MAX: usize = 64;
/// Requests under way, and who waits for the outcome of a stop, have so long when the server ends.
const END_GRACE: Duration = Duration::from_secs(1);
/// Time until connections are taken again after the system had no room for one.
const NO_ROOM_PAUSE: Duration = Duration::from_millis(20);

/// The connections of a server; each is closed by its task's handle.
pub(super) type SharedSeats = Arc<Mutex<Seats<AbortHandle>>>;

/// A running server. Dropping it ends the server and waits for its thread, a second at most.
#[derive(Debug)]
pub struct RestServer {
    address: SocketAddr,
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl RestServer {
    /// Serves a job.
    ///
    /// # Errors
    /// `Config`: the address is not loopback and there is no token, or the token's file can't be used. `Io`: the address can't be
    /// listened on, the audit log can't be opened, or there is no thread.
    pub(crate) fn start(
        endpoint: JobEndpoint,
        config: Config,
        options: RestOptions,
    ) -> Result<Self> {
        let token = Token::required(&options)?;
        let audit = Audit::open(&options.audit)?;
        let failed = |what: &str, error: io::Error| {
            Error::new(ErrorKind::Io, format!("{}: {what}: {error}", options.address))
                .caused_by(error)
        };
        let listener = StdListener::bind(options.address)
            .map_err(|error| failed("can't be listened on", error))?;
        let set = listener.set_nonblocking(true).and_then(|()| listener.local_addr());
        let address = set.map_err(|error| failed("can't be listened on", error))?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| failed("can't be served", error))?;
        let jid = jid(endpoint.name());
        let desk = Arc::new(Desk {
            endpoint,
            options: options.clone(),
            config,
            token,
            audit,
            triggers: Mutex::new(Triggers::default()),
            jid,
            figures: Figures::default(),
        });
        let (end, ended) = oneshot::channel();
        let serving = move || runtime.block_on(serve(desk, listener, ended));
        let thread = spawn(serving).map_err(|error| failed("there is no thread", error))?;
        Ok(Self { address, end: Some(end), thread: Some(thread) })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for RestServer {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            // A panic on that thread has been told by the hook, and must not become one here.
            let _ = thread.join();
        }
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the server's one thread; it runs no task of the job"
)]
fn spawn(serving: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    std::thread::Builder::new().name("tidegate-rest".to_owned()).spawn(serving)
}

/// Serves until the handle is dropped.
async fn serve(desk: Arc<Desk>, listener: StdListener, ended: oneshot::Receiver<()>) {
    let seats = Arc::new(Mutex::new(Seats::new(desk.options.connections_max)));
    // The listener is non-blocking, which is all that can be wrong with it.
    let Ok(listener) = TcpListener::from_std(listener) else { return };
    let accepting = tokio::spawn(accept(desk.clone(), listener, seats.clone()));
    let _ = ended.await;
    // Who stopped a job wants to know how that ended, and most programs end with their job.
    let answered = async {
        while lock(&seats).busy() > 0 || owes_an_outcome(&desk) {
            tokio::time::sleep(NO_ROOM_PAUSE).await;
        }
    };
    let _ = tokio::time::timeout(END_GRACE, answered).await;
    accepting.abort();
}

async fn accept(desk: Arc<Desk>, listener: TcpListener, seats: SharedSeats) {
    let service = TowerToHyperService::new(router(desk.clone()));
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let room = lock(&seats).make_room();
                match room {
                    Ok(None) => {}
                    Ok(Some(oldest)) => {
                        oldest.abort();
                        desk.figures.connections_closed_idle.fetch_add(1, Relaxed);
                    }
                    // Each of the others waits for an answer that comes by a deadline.
                    Err(()) => continue,
                }
                lock(&seats).sit(|id| {
                    let connection = connection(&desk, stream, id, seats.clone(), &service);
                    tokio::spawn(connection).abort_handle()
                });
            }
            Err(_) => {
                // Most likely too many files are open.
                let oldest = lock(&seats).evict();
                if let Some(oldest) = oldest {
                    oldest.abort();
                    desk.figures.connections_closed_idle.fetch_add(1, Relaxed);
                }
                tokio::time::sleep(NO_ROOM_PAUSE).await;
            }
        }
    }
}

/// A seat that is left when the connection's task ends, also when it is aborted.
#[derive(Clone, Debug)]
pub(super) struct Seat {
    id: SeatId,
    seats: SharedSeats,
}

impl Seat {
    pub(super) fn is_busy(&self) {
        lock(&self.seats).is_busy(self.id);
    }

    pub(super) fn is_idle(&self) {
        lock(&self.seats).is_idle(self.id);
    }
}

struct Leaves(Seat);

impl Drop for Leaves {
    fn drop(&mut self) {
        lock(&self.0.seats).leave(self.0.id);
    }
}

/// Answers the requests of one connection.
fn connection(
    desk: &Desk,
    stream: TcpStream,
    id: SeatId,
    seats: SharedSeats,
    service: &TowerToHyperService<Router>,
) -> impl Future<Output = ()> + Send + 'static + use<> {
    let header_timeout = desk.options.header_timeout;
    let seat = Seat { id, seats };
    let service = service.clone();
    async move {
        let _leaves = Leaves(seat.clone());
        let _ = stream.set_nodelay(true);
        let answers = service_fn(move |mut request: Request<Incoming>| {
            request.extensions_mut().insert(seat.clone());
            let answer = service.call(request);
            async move { Ok::<_, Infallible>(answer.await.unwrap_or_else(|never| match never {})) }
        });
        // That a client goes away in the middle concerns nobody.
        let _ = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(header_timeout)
            .max_headers(HEADERS_MAX)
            .max_buf_size(HEAD_BYTES_MAX)
            .serve_connection(TokioIo::new(stream), answers)
            .await;
    }
}

fn lock(seats: &SharedSeats) -> MutexGuard<'_, Seats<AbortHandle>> {
    seats.lock().unwrap_or_else(PoisonError::into_inner)
}
