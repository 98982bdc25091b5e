//! What all requests to one server share.

use std::sync::Mutex;
use std::sync::atomic::AtomicU64;
use std::time::{SystemTime, UNIX_EPOCH};

use super::RestOptions;
use super::audit::Audit;
use super::auth::Token;
use super::triggers::Triggers;
use crate::config::Config;
use crate::runtime::JobEndpoint;

/// The server's state.
#[derive(Debug)]
pub(super) struct Desk {
    pub(super) endpoint: JobEndpoint,
    pub(super) options: RestOptions,
    pub(super) config: Config,
    pub(super) token: Option<Token>,
    pub(super) audit: Audit,
    pub(super) triggers: Mutex<Triggers>,
    pub(super) jid: String,
    pub(super) figures: Figures,
}

/// What the server counts about itself.
#[derive(Debug, Default)]
pub(super) struct Figures {
    pub(super) requests: AtomicU64,
    pub(super) refused: AtomicU64,
    pub(super) audit_lines_lost: AtomicU64,
    pub(super) connections_closed_idle: AtomicU64,
}

/// The id of a job in the interface: 32 hexadecimal digits made of its name (FNV-1a), so that it outlives the process.
pub(super) fn jid(name: &str) -> String {
    const BASIS: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    let hash = name.bytes().fold(BASIS, |hash, byte| (hash ^ u128::from(byte)).wrapping_mul(PRIME));
    format!("{hash:032x}")
}

/// The moment, in milliseconds since 1970.
#[expect(
    clippy::disallowed_methods,
    reason = "the server runs beside the job and tells people the time"
)]
pub(super) fn now_millis() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_makes_one_id() {
        assert_eq!(jid("flights"), jid("flights"));
        assert_ne!(jid("flights"), jid("flight"));
        // The hash of nothing is the basis, as FNV's authors publish it.
        assert_eq!(jid(""), "6c62272e07bb014262b821756295c58d");
    }
}
