//! The token that a request must bear, if there is one.

use std::fs::File;
use std::io::Read;
use std::net::SocketAddr;
use std::path::Path;

use subtle::ConstantTimeEq;

use super::RestOptions;
use crate::error::{Error, Result};

/// A longer token is a wrong file.
const TOKEN_BYTES_MAX: u64 = 4096;
/// A shorter token can be guessed.
const TOKEN_BYTES_MIN: usize = 16;

/// A token, which is neither shown nor printed.
pub(super) struct Token(Vec<u8>);

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token")
    }
}

impl Token {
    /// The token that these options ask for.
    ///
    /// # Errors
    /// The address is not loopback and there is no token; or the token's file can't be used.
    pub(super) fn required(options: &RestOptions) -> Result<Option<Self>> {
        match &options.token_file {
            Some(path) => Self::read(path).map(Some),
            None if options.address.ip().is_loopback() => Ok(None),
            None => Err(no_token(options.address)),
        }
    }

    fn read(path: &Path) -> Result<Self> {
        let failed = |error| Error::io(path, "the token can't be read", error);
        // What is checked is what is read: both by the open file, whatever happens to its name meanwhile.
        let mut file = File::open(path).map_err(failed)?;
        let meta = file.metadata().map_err(failed)?;
        #[cfg(unix)]
        {
            let mode = std::os::unix::fs::PermissionsExt::mode(&meta.permissions()) & 0o777;
            if !meta.is_file() || mode & 0o077 != 0 {
                let text = format!(
                    "holds the token, so it must be a file with mode 0600; it has {mode:04o}"
                );
                return Err(Error::config(text).at_path(path));
            }
        }
        let mut bytes = Vec::new();
        file.by_ref().take(TOKEN_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(failed)?;
        let token = bytes.trim_ascii().to_vec();
        let is_token = token.iter().all(u8::is_ascii_graphic);
        if bytes.len() as u64 > TOKEN_BYTES_MAX || token.len() < TOKEN_BYTES_MIN || !is_token {
            let text = format!(
                "holds no token: one has {TOKEN_BYTES_MIN} to {TOKEN_BYTES_MAX} printable ASCII characters"
            );
            return Err(Error::config(text).at_path(path));
        }
        Ok(Self(token))
    }

    /// Whether a header bears this token, found out in a time that says nothing about how much of it is right.
    pub(super) fn is_borne(&self, header: Option<&[u8]>) -> bool {
        let Some((scheme, token)) = header.and_then(|header| header.split_at_checked(7)) else {
            return false;
        };
        scheme.eq_ignore_ascii_case(b"bearer ") && bool::from(token.trim_ascii().ct_eq(&self.0))
    }
}

fn no_token(address: SocketAddr) -> Error {
    Error::config(format!(
        "option 'rest.address': {address} can be reached by others, so it needs 'rest.token-file'"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_bears_the_whole_token_or_not() {
        let token = Token(b"0123456789abcdef".to_vec());
        for (header, is_borne) in [
            ("Bearer 0123456789abcdef", true),
            ("bearer  0123456789abcdef ", true),
            ("Bearer 0123456789abcdeF", false),
            ("Bearer 0123456789abcde", false),
            ("Bearer ", false),
            ("Basic 0123456789abcdef", false),
            ("", false),
        ] {
            assert_eq!(token.is_borne(Some(header.as_bytes())), is_borne, "{header}");
        }
        assert!(!token.is_borne(None));
        assert_eq!(format!("{token:?}"), "Token");
    }

    #[cfg(unix)]
    #[test]
    fn a_token_others_may_read_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("token");
        std::fs::write(&path, "0123456789abcdef\n").expect("written");
        for (mode, is_used) in [(0o600, true), (0o400, true), (0o640, false), (0o604, false)] {
            std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).expect("changed");
            assert_eq!(Token::read(&path).is_ok(), is_used, "{mode:o}");
        }
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).expect("changed");
        for text in ["", "short", "a token with blanks in it", "ünprintable-token-ü"] {
            std::fs::write(&path, text).expect("written");
            assert!(Token::read(&path).is_err(), "{text}");
        }
        assert!(Token::read(dir.path()).is_err());
    }

    #[test]
    fn other_addresses_than_loopback_need_a_token() {
        let at = |address: &str| RestOptions::at(address.parse().expect("an address"));
        for (address, is_open) in [
            ("127.0.0.1:0", true),
            ("127.1.2.3:0", true),
            ("[::1]:0", true),
            ("0.0.0.0:0", false),
            ("[::]:0", false),
            ("10.0.0.1:80", false),
        ] {
            assert_eq!(Token::required(&at(address)).is_ok(), is_open, "{address}");
        }
    }
}
