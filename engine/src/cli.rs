//! The command line: looks at snapshots, and at running jobs through their REST interface.
//!
//! [`run`] is all of the program but its process: it is given arguments and streams and returns the exit code. 0: done; 1: it
//! could not be done; 2: the command line is wrong, or asks for what is not supported; 3: a snapshot is bad.

mod blocklist;
mod checkpoint;
mod jobs;
mod remote;
mod table;

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::PathBuf;

use clap::{Arg, ArgAction, ArgMatches, Command};
use serde_json::Value;

use crate::error::{Error, ErrorKind, Result};

const FAILED: u8 = 1;
const WRONG: u8 = 2;
const BAD: u8 = 3;

/// Runs the program with `args`, of which the first is its name, and returns its exit code.
pub fn run(
    args: impl IntoIterator<Item = OsString>,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> u8 {
    let matches = match command().try_get_matches_from(args) {
        Ok(matches) => matches,
        Err(error) => {
            let text = error.render();
            if error.use_stderr() {
                let _ = write!(err, "{text}");
                return WRONG;
            }
            let _ = write!(out, "{text}");
            return 0;
        }
    };
    carry_out(&matches, out).unwrap_or_else(|error| {
        let _ = writeln!(err, "tidegate: {error}");
        match error.kind() {
            ErrorKind::Checkpoint => BAD,
            ErrorKind::Unsupported | ErrorKind::Config => WRONG,
            ErrorKind::Record
            | ErrorKind::User
            | ErrorKind::Io
            | ErrorKind::Cancelled
            | ErrorKind::Stuck
            | ErrorKind::Resources
            | ErrorKind::Internal => FAILED,
        }
    })
}

fn carry_out(matches: &ArgMatches, out: &mut dyn Write) -> Result<u8> {
    let Some((name, matches)) = matches.subcommand() else { return Ok(WRONG) };
    match (name, matches.subcommand()) {
        ("checkpoint", Some(("list", matches))) => checkpoint::list(matches, out),
        ("checkpoint", Some(("inspect", matches))) => checkpoint::show(matches, out),
        ("checkpoint", Some(("verify", matches))) => checkpoint::check(matches, out),
        ("blocklist", Some(("list", matches))) => blocklist::list(matches, out),
        ("blocklist", Some(("add", matches))) => blocklist::add(matches, out),
        ("blocklist", Some(("remove", matches))) => blocklist::remove(matches, out),
        ("jobs", None) => jobs::list(matches, out),
        ("taskmanagers", None) => jobs::task_managers(matches, out),
        ("savepoint", None) => jobs::savepoint(matches, out),
        ("stop", None) => jobs::stop(matches, out),
        (_, _) => Ok(WRONG),
    }
}

fn command() -> Command {
    Command::new("tidegate")
        .about("Looks after Tidegate jobs and their snapshots")
        .version(env!("CARGO_PKG_VERSION"))
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(of_checkpoints())
        .subcommand(of_the_blocklist())
        .subcommand(remote(Command::new("jobs").about("Lists the jobs of a server")))
        .subcommand(remote(
            Command::new("taskmanagers")
                .about("Lists task managers, their nodes, node pools, slots and subtasks"),
        ))
        .subcommand(remote(
            Command::new("savepoint")
                .about("Takes a savepoint of a running job, and waits for it")
                .args([
                    job(),
                    Arg::new("dir")
                        .value_name("DIR")
                        .required(true)
                        .value_parser(clap::value_parser!(PathBuf))
                        .help("Where the savepoint's folder is made, on the job's machine"),
                ]),
        ))
        .subcommand(remote(
            Command::new("stop")
                .about("Stops a job with a last checkpoint, and waits for its end")
                .args([
                    job(),
                    Arg::new("savepoint")
                        .long("savepoint")
                        .value_name("DIR")
                        .value_parser(clap::value_parser!(PathBuf))
                        .help("Stops it with a savepoint in that folder of its machine"),
                    flag("drain", "Lets it end as if its sources were exhausted")
                        .requires("savepoint"),
                ]),
        ))
}

fn of_checkpoints() -> Command {
    let dir = || {
        Arg::new("dir")
            .value_name("DIR")
            .required(true)
            .value_parser(clap::value_parser!(PathBuf))
            .help("A checkpoint directory, or the folder of one savepoint")
    };
    let id = |help| Arg::new("id").value_name("ID").help(help);
    Command::new("checkpoint")
        .about("Looks at checkpoints and savepoints")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(Command::new("list").about("Lists them").args([dir(), json()]))
        .subcommand(Command::new("inspect").about("Shows what is in one").args([
            dir(),
            id("Which checkpoint; the last one if not given"),
            json(),
        ]))
        .subcommand(
            Command::new("verify")
                .about("Reads every byte and names the first bad one; exit code 3 if there is one")
                .args([dir(), id("Which checkpoint; all if not given"), json()]),
        )
}

fn of_the_blocklist() -> Command {
    let many = |name: &'static str, help| {
        Arg::new(name).long(name).value_name("ID").action(ArgAction::Append).help(help)
    };
    let add = Command::new("add")
        .about("Blocklists task managers and nodes; all of them or none")
        .args([
            many("node", "A node; may be given more than once"),
            many("task-manager", "A task manager; may be given more than once"),
            flag("evacuate", "Moves the tasks there away; without, only new ones are kept off"),
            Arg::new("timeout")
                .long("timeout")
                .value_name("TIME")
                .help("For so long, like `10 min`"),
            Arg::new("cause").long("cause").value_name("TEXT").help("Why"),
            flag("force", "Goes beyond the cap on blocklisted nodes"),
            flag("dry-run", "Tells what would happen and does nothing"),
        ]);
    let remove = Command::new("remove").about("Takes them back; all of them or none").args([
        many("node", "A node; may be given more than once"),
        many("task-manager", "A task manager; may be given more than once"),
        flag("ignore-missing", "Takes no offence at those that are not blocklisted"),
    ]);
    Command::new("blocklist")
        .about("Keeps work off task managers and nodes")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(remote(Command::new("list").about("Lists what is blocklisted")))
        .subcommand(remote(add))
        .subcommand(remote(remove))
}

/// The options of a command that talks to a running job.
fn remote(command: Command) -> Command {
    command.args([
        Arg::new("address")
            .long("address")
            .value_name("HOST:PORT")
            .default_value("127.0.0.1:8081")
            .help("Where the job is served"),
        Arg::new("token-file")
            .long("token-file")
            .value_name("FILE")
            .value_parser(clap::value_parser!(PathBuf))
            .help("The file with the token that the server asks for"),
        json(),
    ])
}

fn job() -> Arg {
    Arg::new("job").value_name("JOB").required(true).help("The job's name or id")
}

fn json() -> Arg {
    flag("json", "JSON instead of a table")
}

fn flag(name: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).action(ArgAction::SetTrue).help(help)
}

fn put(out: &mut dyn Write, value: &Value) -> Result<()> {
    writeln!(out, "{value}").map_err(no_output)
}

fn no_output(error: io::Error) -> Error {
    Error::new(ErrorKind::Io, format!("can't write: {error}")).caused_by(error)
}
