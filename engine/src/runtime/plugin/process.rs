//! One run of a plug-in's program: a thread that starts it and writes to it, and one that reads what it says.
//!
//! Both directions have a bound. A line that is too long, a flood of lines or the end of the output ends the run; dropping a
//! [`Child`] kills the program and all of its process group. Nothing here waits for the program except its own two threads.

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::process::{Pid, Signal, kill_process_group};

use super::wire::{self, Answer};
use crate::control::blocklist::plugin::LINE_BYTES_MAX;

/// Lines in either direction that may wait.
const LINES_MAX: usize = 64;

/// What a program says, or what became of it.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Said {
    /// It runs.
    Started,
    /// An answer.
    Answer(Answer),
    /// Something that is no answer, or it could not be started.
    Garbage(String),
    /// It is gone.
    Exited,
}

/// A program that runs, or is being started.
#[derive(Debug)]
pub(super) struct Child {
    lines: SyncSender<String>,
    said: Receiver<Said>,
    fate: Arc<Mutex<Fate>>,
}

/// Whether the program is to be killed, and which it is. Held for a moment only, never while anything is waited for.
#[derive(Debug, Default)]
struct Fate {
    group: Option<Pid>,
    is_doomed: bool,
}

impl Child {
    /// Starts a program; whether it could be started is [`said`](Self::said) later.
    pub(super) fn start(command: Vec<String>) -> io::Result<Self> {
        let (lines, to_write) = sync_channel(LINES_MAX);
        // One place is kept for the end, which must not get lost.
        let (say, said) = sync_channel(LINES_MAX);
        let fate = Arc::new(Mutex::new(Fate::default()));
        let its_fate = fate.clone();
        spawn("plugin-writer", move || supervise(&command, &to_write, &say, &its_fate))?;
        Ok(Self { lines, said, fate })
    }

    /// Hands a line over to be written. Whether there was room.
    pub(super) fn ask(&self, line: String) -> bool {
        self.lines.try_send(line).is_ok()
    }

    /// The process group, once it runs.
    #[cfg(test)]
    pub(super) fn group(&self) -> Option<Pid> {
        self.fate.lock().unwrap_or_else(PoisonError::into_inner).group
    }

    /// The next thing it has said.
    pub(super) fn said(&self) -> Option<Said> {
        self.said.try_recv().ok()
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let mut fate = self.fate.lock().unwrap_or_else(PoisonError::into_inner);
        fate.is_doomed = true;
        kill(fate.group);
    }
}

fn kill(group: Option<Pid>) {
    if let Some(group) = group {
        // It may have ended by itself.
        let _ = kill_process_group(group, Signal::KILL);
    }
}

#[expect(clippy::disallowed_methods, reason = "a program is waited for by threads of its own")]
fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<()> {
    std::thread::Builder::new().name(name.to_owned()).spawn(run).map(drop)
}

/// Starts the program and writes to it until nobody asks any more or it takes nothing.
fn supervise(
    command: &[String],
    lines: &Receiver<String>,
    say: &SyncSender<Said>,
    fate: &Arc<Mutex<Fate>>,
) {
    let started = Command::new(&command[0])
        .args(&command[1..])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn();
    let mut child = match started {
        Ok(child) => child,
        Err(error) => {
            let _ = say.send(Said::Garbage(format!("'{}' can't be started: {error}", command[0])));
            return;
        }
    };
    let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
    {
        let mut fate = fate.lock().unwrap_or_else(PoisonError::into_inner);
        fate.group = Pid::from_raw(child.id().cast_signed());
        if fate.is_doomed {
            kill(fate.group);
        }
    }
    let (Some(mut stdin), Some(stdout)) = (stdin, stdout) else { return };
    let (its_say, its_fate) = (say.clone(), fate.clone());
    let reading = spawn("plugin-reader", move || {
        read(stdout, &its_say);
        let mut fate = its_fate.lock().unwrap_or_else(PoisonError::into_inner);
        kill(fate.group.take());
        drop(fate);
        // It was killed, so this wait is short; without it the process would stay as a zombie.
        let _ = child.wait();
        let _ = its_say.send(Said::Exited);
    });
    if reading.is_err() || say.send(Said::Started).is_err() {
        return;
    }
    while let Ok(line) = lines.recv() {
        if stdin.write_all(line.as_bytes()).and_then(|()| stdin.flush()).is_err() {
            return;
        }
    }
}

/// Reads answers until the output ends, or one can't be taken.
fn read(stdout: ChildStdout, say: &SyncSender<Said>) {
    let mut stdout = BufReader::new(stdout);
    let mut line = Vec::new();
    loop {
        line.clear();
        let said = match read_line(&mut stdout, &mut line) {
            Ok(true) => match wire::answer(&line) {
                Ok(answer) => Said::Answer(answer),
                Err(what) => Said::Garbage(what),
            },
            Ok(false) => return,
            Err(what) => {
                let _ = say.send(Said::Garbage(what));
                return;
            }
        };
        match say.try_send(said) {
            Ok(()) => {}
            Err(TrySendError::Full(_)) => {
                let _ = say.send(Said::Garbage(format!("more than {LINES_MAX} lines at a time")));
                return;
            }
            Err(TrySendError::Disconnected(_)) => return,
        }
    }
}

/// Reads one line without its end into `line`; false at the end of the output.
fn read_line(from: &mut impl BufRead, line: &mut Vec<u8>) -> Result<bool, String> {
    loop {
        let bytes = match from.fill_buf() {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(format!("its output can't be read: {error}")),
        };
        if bytes.is_empty() {
            return if line.is_empty() { Ok(false) } else { Err("it ended within a line".into()) };
        }
        let (end, used) = match memchr::memchr(b'\n', bytes) {
            Some(at) => (Some(at), at + 1),
            None => (None, bytes.len()),
        };
        line.extend_from_slice(&bytes[..end.unwrap_or(used)]);
        from.consume(used);
        if line.len() > LINE_BYTES_MAX {
            return Err(format!("a line of more than {LINE_BYTES_MAX} bytes"));
        }
        if end.is_some() {
            return Ok(true);
        }
    }
}
