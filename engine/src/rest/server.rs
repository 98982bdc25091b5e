//! The server: takes connections, bounds them, and ends with its handle.
//!
//! The one that `rest.address` asks for shares the control thread, where answers cost no change of threads (bench `steered`); others
//! have a thread of their own. Nothing in it waits for a client, however slow: what clients send is read with time limits, and too many
//! connections push the idlest out.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::io;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::pin::pin;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
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
use tokio::runtime::Runtime;
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
use crate::runtime::{ControlHost, ControlLoop, JobEndpoint, Shared};

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

/// A running server. Dropping it ends the server and waits for that, a second at most; one that shares the control thread of a job that
/// is not over ends by itself a little later.
#[derive(Debug)]
pub struct RestServer {
    address: SocketAddr,
    job: Arc<Shared>,
    end: Option<oneshot::Sender<()>>,
    thread: Option<Thread>,
}

#[derive(Debug)]
enum Thread {
    Own(JoinHandle<()>),
    Control(JoinHandle<()>),
}

impl RestServer {
    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for RestServer {
    fn drop(&mut self) {
        drop(self.end.take());
        let thread = match self.thread.take() {
            Some(Thread::Own(thread)) => thread,
            Some(Thread::Control(thread)) if self.job.state().is_over() => thread,
            Some(Thread::Control(_)) | None => return,
        };
        // A panic on that thread has been told by the hook, and must not become one here.
        let _ = thread.join();
    }
}

/// A server that listens, and that nobody runs yet.
pub(crate) struct Serving {
    server: RestServer,
    room: Room,
}

struct Room {
    runtime: Runtime,
    desk: Arc<Desk>,
    listener: StdListener,
    ended: oneshot::Receiver<()>,
}

impl Serving {
    /// Listens.
    ///
    /// # Errors
    /// `Config`: the address is not loopback and there is no token, or the token's file can't be used. `Io`: the address can't be
    /// listened on, or the audit log can't be opened.
    pub(crate) fn open(
        endpoint: JobEndpoint,
        config: Config,
        options: RestOptions,
    ) -> Result<Self> {
        let token = Token::required(&options)?;
        let audit = Audit::open(&options.audit)?;
        let failed = |error| failed(options.address, error);
        let listener = StdListener::bind(options.address).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(failed)?;
        let job = endpoint.shared().clone();
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
        let server = RestServer { address, job, end: Some(end), thread: None };
        Ok(Self { server, room: Room { runtime, desk, listener, ended } })
    }

    /// Serves the job from a thread of the server's own.
    ///
    /// # Errors
    /// `Io` if there is no thread.
    pub(crate) fn alone(self) -> Result<RestServer> {
        let Self { mut server, room: Room { runtime, desk, listener, ended } } = self;
        let thread = spawn(move || runtime.block_on(serve(desk, listener, ended)))
            .map_err(|error| failed(server.address, error))?;
        server.thread = Some(Thread::Own(thread));
        Ok(server)
    }

    /// Serves the job from its control thread, which `start` starts with what it is to run.
    ///
    /// # Errors
    /// Those of `start`.
    pub(crate) fn on_control(
        self,
        start: impl FnOnce(ControlHost) -> Result<Option<JoinHandle<()>>>,
    ) -> Result<RestServer> {
        let Self { mut server, room: Room { runtime, desk, listener, ended } } = self;
        let host: ControlHost = Box::new(move |control| {
            runtime.block_on(async {
                let serving = tokio::spawn(serve(desk, listener, ended));
                // A task like those of clients: the runtime looks for what comes from outside before it polls the root future again.
                if let Err(error) = tokio::spawn(steer(control)).await
                    && let Ok(panic) = error.try_into_panic()
                {
                    std::panic::resume_unwind(panic);
                }
                let _ = serving.await;
            });
        });
        server.thread = start(host)?.map(Thread::Control);
        Ok(server)
    }
}

/// Runs control to the end of the job, beside the tasks of clients.
async fn steer(mut control: ControlLoop) {
    let mut alarm = pin!(tokio::time::sleep(Duration::ZERO));
    poll_fn(|task| {
        loop {
            if control.poll(task).is_ready() {
                return Poll::Ready(());
            }
            let Some(wait) = control.wait() else { return Poll::Pending };
            // A timer that is set anew is never over at once, not even one set to now.
            if !wait.is_zero() {
                alarm.as_mut().reset(tokio::time::Instant::now() + wait);
                if alarm.as_mut().poll(task).is_pending() {
                    return Poll::Pending;
                }
            }
            control.tick();
        }
    })
    .await;
}

fn failed(address: SocketAddr, error: io::Error) -> Error {
    let text = format!("{address}: can't be served: {error}");
    Error::new(ErrorKind::Io, text).caused_by(error)
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
