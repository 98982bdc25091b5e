//! The output folder: what may lie in it, how a part is committed, what is removed.
//!
//! Invariants. A commit never replaces a file, and doing it again changes nothing. Only names that this sink makes for
//! uncommitted parts are ever removed.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, ErrorKind as IoKind, Read as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use super::part::{Sealed, checkpoint_of, parse_name};
use crate::error::{Error, ErrorKind, Result};
use crate::id::{Attempt, CheckpointId};

/// Where parts go that a job has gone back behind.
const SUPERSEDED: &str = ".superseded";

/// The newest attempt that each subtask has opened in this process; shared by a sink's clones.
#[derive(Clone, Debug, Default)]
pub(super) struct Attempts(Arc<Mutex<BTreeMap<u32, Attempt>>>);

impl Attempts {
    /// Forgets the attempts of an earlier run of the same sink.
    pub(super) fn reset(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Notes that `attempt` opens, and refuses one that was left behind: it would remove its successor's files.
    pub(super) fn enter(&self, subtask: u32, attempt: Attempt) -> Result<()> {
        let mut newest = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let newest = newest.entry(subtask).or_insert(attempt);
        if *newest > attempt {
            return Err(Error::new(
                ErrorKind::Cancelled,
                format!("attempt {attempt} was superseded by attempt {newest}"),
            ));
        }
        *newest = attempt;
        Ok(())
    }
}

/// What a writer finds when it opens.
pub(super) struct Found {
    /// Above every number of this subtask.
    pub(super) next_number: u64,
    /// Names of uncommitted parts of this subtask, and of subtasks that are no more and fall to it.
    pub(super) uncommitted: Vec<String>,
}

/// The folder, open.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    handle: File,
}

impl Folder {
    /// Makes the folder if it is not there, and refuses one that holds anything else than parts.
    pub(super) fn create(path: &Path) -> Result<()> {
        fs::create_dir_all(path)
            .map_err(|error| Error::io(path, "can't make the output folder", error))?;
        for name in names(path)? {
            let is_ours = name.starts_with("part-") || name.starts_with(".part-");
            if !is_ours && name != SUPERSEDED {
                return Err(Error::config(format!(
                    "the output folder holds '{name}', which is none of our parts; \
                     give the sink a folder of its own"
                ))
                .at_path(path));
            }
        }
        Ok(())
    }

    pub(super) fn open(path: &Path) -> Result<Self> {
        let handle = File::open(path)
            .map_err(|error| Error::io(path, "can't open the output folder", error))?;
        Ok(Self { path: path.to_owned(), handle })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Moves parts that a checkpoint after `after` committed out of the way, durably.
    pub(super) fn supersede(&self, after: CheckpointId) -> Result<()> {
        let is_later = |name: &String| checkpoint_of(name).is_some_and(|of| of > after);
        let later: Vec<String> = names(&self.path)?.into_iter().filter(is_later).collect();
        if later.is_empty() {
            return Ok(());
        }
        let aside = self.path.join(SUPERSEDED);
        fs::create_dir_all(&aside).map_err(|error| Error::io(&aside, "can't be made", error))?;
        let aside = Self::open(&aside)?;
        for name in later {
            // The job may have gone back before, and have given the name again.
            let mut to = name.clone();
            for again in 1.. {
                if !aside.path.join(&to).exists() {
                    break;
                }
                to = format!("{name}.{again}");
            }
            fs::rename(self.path.join(&name), aside.path.join(&to))
                .map_err(|error| Error::io(self.path.join(&name), "can't be moved", error))?;
        }
        aside.sync()?;
        self.sync()
    }

    /// Makes the names in the folder durable.
    pub(super) fn sync(&self) -> Result<()> {
        self.handle
            .sync_all()
            .map_err(|error| Error::io(&self.path, "can't make the output folder durable", error))
    }

    /// What a writer of `subtask` finds.
    pub(super) fn scan(&self, subtask: u32, parallelism: u32) -> Result<Found> {
        let mut found = Found { next_number: 0, uncommitted: Vec::new() };
        // A listing can miss a part that another subtask, restored with it, is just renaming. The second can't.
        for name in names(&self.path)?.into_iter().chain(names(&self.path)?) {
            let Some((of, number, is_committed)) = parse_name(&name) else {
                continue;
            };
            if of == subtask {
                found.next_number = found.next_number.max(number.saturating_add(1));
            }
            let is_ours = of == subtask || of >= parallelism && of % parallelism == subtask;
            if is_ours && !is_committed {
                found.uncommitted.push(name);
            }
        }
        found.uncommitted.sort_unstable();
        found.uncommitted.dedup();
        Ok(found)
    }

    /// Removes uncommitted parts, those that are still there.
    pub(super) fn remove(&self, uncommitted: &mut Vec<String>) -> Result<()> {
        while let Some(name) = uncommitted.last() {
            let path = self.path.join(name);
            match fs::remove_file(&path) {
                Err(error) if error.kind() != IoKind::NotFound => {
                    return Err(Error::io(path, "can't remove an uncommitted part", error));
                }
                _ => uncommitted.pop(),
            };
        }
        Ok(())
    }

    /// Renames an uncommitted part, unless that has been done.
    pub(super) fn commit(&self, part: &Sealed) -> Result<()> {
        let (from, to) = (part.uncommitted_name(), part.committed_name());
        match self.rename(&from, &to) {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == IoKind::NotFound => match self.holds(&to, part) {
                Ok(true) => Ok(()),
                Ok(false) => Err(self.occupied(&to)),
                Err(error) if error.kind() == IoKind::NotFound => Err(Error::new(
                    ErrorKind::Checkpoint,
                    format!("a part of a complete checkpoint is missing: neither '{from}' nor '{to}' exists"),
                )
                .at_path(&self.path)),
                Err(error) => Err(Error::io(self.path.join(to), "can't read", error)),
            },
            Err(error) if error.kind() == IoKind::AlreadyExists => match self.holds(&to, part) {
                // A crash came between the two steps of a commit by linking.
                Ok(true) => self.remove(&mut vec![from]),
                Ok(false) => Err(self.occupied(&to)),
                Err(error) => Err(Error::io(self.path.join(to), "can't read", error)),
            },
            Err(error) => Err(Error::io(self.path.join(to), "can't commit the file", error)),
        }
    }

    fn occupied(&self, name: &str) -> Error {
        Error::new(ErrorKind::Io, "can't commit: another file has this name and is not replaced")
            .at_path(self.path.join(name))
    }

    /// Whether the file `name` is what was sealed.
    fn holds(&self, name: &str, part: &Sealed) -> io::Result<bool> {
        let mut file = File::open(self.path.join(name))?;
        if file.metadata()?.len() != part.len {
            return Ok(false);
        }
        let (mut buffer, mut crc) = (vec![0; 256 << 10], 0);
        loop {
            match file.read(&mut buffer) {
                Ok(0) => return Ok(crc == part.crc),
                Ok(n) => crc = crc32c::crc32c_append(crc, &buffer[..n]),
                Err(error) if error.kind() == IoKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Renames without replacing.
    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        #[cfg(target_os = "linux")]
        {
            use rustix::fs::{RenameFlags, renameat_with};
            use rustix::io::Errno;
            match renameat_with(&self.handle, from, &self.handle, to, RenameFlags::NOREPLACE) {
                Ok(()) => return Ok(()),
                // The file system or the kernel can't do it in one step.
                Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.link(from, to)
    }

    /// The same in two steps: a link never replaces either.
    fn link(&self, from: &str, to: &str) -> io::Result<()> {
        fs::hard_link(self.path.join(from), self.path.join(to))?;
        fs::remove_file(self.path.join(from))
    }
}

/// The names in a folder; one that is no text is shown with replacement characters and so matches no pattern exactly.
fn names(path: &Path) -> Result<Vec<String>> {
    let failed = |error| Error::io(path, "can't list the output folder", error);
    fs::read_dir(path)
        .map_err(failed)?
        .map(|entry| Ok(entry.map_err(failed)?.file_name().to_string_lossy().into_owned()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::part::Part;
    use super::*;

    fn sealed(folder: &Folder, number: u64) -> Sealed {
        let mut part = Part::create(folder, 0, number, 0).expect("creates");
        part.append(b"line\n").expect("appends");
        part.seal("txt").expect("seals")
    }

    #[test]
    fn a_commit_by_linking_never_replaces_and_survives_a_crash_between_its_steps() {
        let dir = tempfile::tempdir().expect("makes a folder");
        let folder = Folder::open(dir.path()).expect("opens");
        let part = sealed(&folder, 0);
        let (from, to) = (part.uncommitted_name(), part.committed_name());
        folder.link(&from, &to).expect("links");
        assert_eq!(folder.link(&from, &to).expect_err("is refused").kind(), IoKind::NotFound);
        folder.commit(&part).expect("is done already");

        let part = sealed(&folder, 1);
        let (from, to) = (dir.path().join(part.uncommitted_name()), part.committed_name());
        fs::hard_link(&from, dir.path().join(to)).expect("links");
        folder.commit(&part).expect("finishes the second step");
        assert!(!from.exists());
    }

    #[test]
    fn a_part_that_is_gone_or_a_name_that_is_taken_is_an_error() {
        let dir = tempfile::tempdir().expect("makes a folder");
        let folder = Folder::open(dir.path()).expect("opens");
        let part = sealed(&folder, 0);
        let taken = dir.path().join(part.committed_name());
        fs::write(&taken, "LINE\n").expect("writes");
        assert_eq!(folder.commit(&part).expect_err("is refused").path(), Some(taken.as_path()));
        assert_eq!(fs::read(&taken).expect("reads"), b"LINE\n");
        fs::remove_file(&taken).expect("removes");
        fs::remove_file(dir.path().join(part.uncommitted_name())).expect("removes");
        assert_eq!(folder.commit(&part).expect_err("is refused").kind(), ErrorKind::Checkpoint);
    }

    #[test]
    fn only_names_that_the_sink_makes_are_its_own() {
        assert_eq!(parse_name("part-3-17.csv.old"), Some((3, 17, true)));
        assert_eq!(parse_name(".part-0-5.2"), Some((0, 5, false)));
        for name in
            [".part-0-5", ".part-0-5.x", ".part-0-5.", ".part--5.1", "part-+1-2.txt", "part-"]
        {
            let parsed = parse_name(name);
            assert!(parsed.is_none(), "{name}: {parsed:?}");
        }
    }

    #[test]
    fn an_attempt_that_was_left_behind_is_refused() {
        let attempts = Attempts::default();
        attempts.enter(0, Attempt(1)).expect("is the newest");
        assert_eq!(
            attempts.enter(0, Attempt(0)).expect_err("is refused").kind(),
            ErrorKind::Cancelled
        );
        attempts.enter(1, Attempt(0)).expect("is another subtask");
        attempts.reset();
        attempts.enter(0, Attempt(0)).expect("is another run");
    }
}
