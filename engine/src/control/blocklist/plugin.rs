//! A strategy in another process, which speaks JSON lines: this side's protocol, without the process and the JSON.
//!
//! One request is under way at a time, each with a deadline; a bounded number waits. A plug-in that is late, breaks
//! the protocol or dies is restarted after a back-off; after several failures in a row the circuit opens for a while
//! and failures are not told to it. The runtime runs the process, moves lines and feeds what happens to `handle`.

use std::collections::VecDeque;
use std::time::Duration;

use super::item::NewItem;
use super::strategy::{Backoff, FailureEvent};
use crate::clock::Timestamp;

/// The longest answer accepted, in bytes.
pub const LINE_BYTES_MAX: usize = 1 << 20;

/// How much a plug-in is trusted.
#[derive(Clone, Copy, Debug)]
pub struct PluginConfig {
    /// How long an answer may take.
    pub answer_timeout: Duration,
    /// How many failures may wait; further ones are dropped and counted.
    pub queue_max: usize,
    /// After how many mistakes in a row the circuit opens.
    pub mistakes_max: u32,
    /// How long the circuit stays open.
    pub open_for: Duration,
    /// How long a restart waits.
    pub restart: Backoff,
}

impl Default for PluginConfig {
    fn default() -> Self {
        Self {
            answer_timeout: Duration::from_secs(1),
            queue_max: 64,
            mistakes_max: 3,
            open_for: Duration::from_secs(60),
            restart: Backoff {
                timeout: Duration::from_millis(100),
                multiplier: 2.0,
                max: Duration::from_secs(10),
            },
        }
    }
}

/// What happened.
#[derive(Clone, Debug)]
pub enum PluginInput {
    /// An execution failed: the plug-in is to be asked.
    Failure(Box<FailureEvent>),
    /// The process runs.
    Started,
    /// A line came that is an answer.
    Answer {
        /// To which request.
        id: u64,
        /// The items it wants.
        items: Vec<NewItem>,
    },
    /// A line came that is none: bad JSON, too long, an unknown field.
    Garbage(String),
    /// The process ended.
    Exited,
    /// Time passes.
    Tick,
}

/// What must be done.
#[derive(Clone, Debug)]
pub enum PluginOutput {
    /// Start the process.
    Start,
    /// End the process.
    Kill,
    /// Write a request line.
    Ask {
        /// Names the request.
        id: u64,
        /// What failed.
        failure: Box<FailureEvent>,
    },
    /// Add these items.
    Items(Vec<NewItem>),
    /// Say that the plug-in misbehaves.
    Mistake(String),
}

#[derive(Debug)]
enum Phase {
    /// No process; it is started when there is something to ask.
    Stopped,
    Starting {
        until: Timestamp,
    },
    Ready,
    Asked {
        id: u64,
        until: Timestamp,
    },
    Waiting {
        until: Timestamp,
    },
    Open {
        until: Timestamp,
    },
}

/// The protocol with one plug-in.
#[derive(Debug)]
pub struct Plugin {
    config: PluginConfig,
    phase: Phase,
    queue: VecDeque<Box<FailureEvent>>,
    next_id: u64,
    mistakes: u32,
    dropped: u64,
}

impl Plugin {
    /// A plug-in that is not running yet.
    pub fn new(config: PluginConfig) -> Self {
        Self {
            config,
            phase: Phase::Stopped,
            queue: VecDeque::new(),
            next_id: 0,
            mistakes: 0,
            dropped: 0,
        }
    }

    /// Takes one thing that happened.
    pub fn handle(&mut self, now: Timestamp, input: PluginInput, out: &mut Vec<PluginOutput>) {
        match input {
            PluginInput::Failure(failure) => {
                let is_open = matches!(self.phase, Phase::Open { .. });
                if is_open || self.queue.len() >= self.config.queue_max {
                    self.dropped += 1;
                } else {
                    self.queue.push_back(failure);
                }
            }
            PluginInput::Started => {
                if matches!(self.phase, Phase::Starting { .. }) {
                    self.phase = Phase::Ready;
                }
            }
            PluginInput::Answer { id, items } => match self.phase {
                Phase::Asked { id: asked, .. } if asked == id => {
                    self.phase = Phase::Ready;
                    self.mistakes = 0;
                    out.push(PluginOutput::Items(items));
                }
                Phase::Ready | Phase::Asked { .. } | Phase::Starting { .. } => {
                    self.mistake(now, format!("an answer to {id}, which was not asked"), true, out);
                }
                Phase::Stopped | Phase::Waiting { .. } | Phase::Open { .. } => {}
            },
            PluginInput::Garbage(what) => match self.phase {
                Phase::Ready | Phase::Asked { .. } | Phase::Starting { .. } => {
                    self.mistake(now, what, true, out);
                }
                Phase::Stopped | Phase::Waiting { .. } | Phase::Open { .. } => {}
            },
            PluginInput::Exited => match self.phase {
                Phase::Ready | Phase::Asked { .. } | Phase::Starting { .. } => {
                    self.mistake(now, "its process ended".into(), false, out);
                }
                Phase::Stopped | Phase::Waiting { .. } | Phase::Open { .. } => {}
            },
            PluginInput::Tick => {}
        }
        self.proceed(now, out);
    }

    /// When [`PluginInput::Tick`] is due.
    pub fn deadline(&self) -> Option<Timestamp> {
        match self.phase {
            Phase::Stopped | Phase::Ready => None,
            Phase::Starting { until }
            | Phase::Asked { until, .. }
            | Phase::Waiting { until }
            | Phase::Open { until } => Some(until),
        }
    }

    /// How many failures it was not asked about.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Whether it is left alone because it made too many mistakes.
    pub fn is_open(&self) -> bool {
        matches!(self.phase, Phase::Open { .. })
    }

    fn proceed(&mut self, now: Timestamp, out: &mut Vec<PluginOutput>) {
        match self.phase {
            Phase::Starting { until } | Phase::Asked { until, .. } if until <= now => {
                self.mistake(now, "no answer in time".into(), true, out);
            }
            Phase::Open { until } if until <= now => {
                // Half open: one more mistake opens it again.
                self.mistakes = self.config.mistakes_max - 1;
                self.phase = Phase::Stopped;
            }
            Phase::Waiting { until } if until <= now => self.phase = Phase::Stopped,
            Phase::Stopped
            | Phase::Ready
            | Phase::Starting { .. }
            | Phase::Asked { .. }
            | Phase::Waiting { .. }
            | Phase::Open { .. } => {}
        }
        match self.phase {
            Phase::Stopped if !self.queue.is_empty() => {
                self.phase = Phase::Starting { until: now + self.config.answer_timeout };
                out.push(PluginOutput::Start);
            }
            Phase::Ready => {
                if let Some(failure) = self.queue.pop_front() {
                    self.next_id += 1;
                    let until = now + self.config.answer_timeout;
                    self.phase = Phase::Asked { id: self.next_id, until };
                    out.push(PluginOutput::Ask { id: self.next_id, failure });
                }
            }
            Phase::Stopped
            | Phase::Starting { .. }
            | Phase::Asked { .. }
            | Phase::Waiting { .. }
            | Phase::Open { .. } => {}
        }
    }

    fn mistake(&mut self, now: Timestamp, what: String, kill: bool, out: &mut Vec<PluginOutput>) {
        if kill {
            out.push(PluginOutput::Kill);
        }
        out.push(PluginOutput::Mistake(what));
        self.mistakes += 1;
        if self.mistakes >= self.config.mistakes_max {
            self.dropped += self.queue.len() as u64;
            self.queue.clear();
            self.phase = Phase::Open { until: now + self.config.open_for };
        } else {
            let wait = self.config.restart.timeout(self.mistakes - 1);
            self.phase = Phase::Waiting { until: now + wait };
        }
    }
}
