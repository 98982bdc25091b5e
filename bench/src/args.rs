//! The command line: a command, then options as `--key value`, `--key=value` or `key=value`, all meaning the same.
//!
//! A command has its own options; those of `tidegate::Config` go with every command under their keys
//! (`--checkpoint.interval 200ms`). `_` and `-` are the same in keys, and `_` may divide digits. Precedence is that of
//! `Config`: the command's defaults, the file of `--config`, the environment, the command line.

use std::collections::BTreeMap;

use tidegate::Job;
use tidegate::config::{Config, Origin};
use tidegate::id::CheckpointId;

use crate::failure::Failure;

/// An option of a command.
#[derive(Clone, Copy, Debug)]
pub struct Opt {
    /// Its key.
    pub key: &'static str,
    /// What stands for its value in the help; empty for a flag.
    pub value: &'static str,
    /// What it means.
    pub help: &'static str,
}

/// Shorthand for the tables of options.
pub const fn opt(key: &'static str, value: &'static str, help: &'static str) -> Opt {
    Opt { key, value, help }
}

/// A command.
#[derive(Clone, Copy, Debug)]
pub struct Command {
    /// Its name.
    pub name: &'static str,
    /// What it does.
    pub about: &'static str,
    /// Its options.
    pub options: &'static [Opt],
}

/// Options that go with every command.
const COMMON: &[Opt] = &[
    opt("config", "FILE", "read options from a TOML file"),
    opt("print-config", "", "show each option with its value and where that comes from, and end"),
];

/// Variables of the environment that are no options: they name data for tests.
const NO_OPTIONS: &[&str] = &["TIDEGATE_FLIGHTS"];

/// A command line that was understood.
#[derive(Debug)]
pub struct Args {
    /// The command.
    pub command: &'static Command,
    /// The engine's options.
    pub config: Config,
    values: BTreeMap<&'static str, String>,
}

impl Args {
    /// Reads a command line, without the program's name, for one of `commands`; the first of them if none is named.
    ///
    /// # Errors
    /// `Usage`, naming the nearest thing that would be right; or what is wrong with the file or the environment.
    pub fn parse(
        commands: &'static [Command],
        line: impl IntoIterator<Item = String>,
        environment: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self, Failure> {
        let mut line = line.into_iter().peekable();
        let named = line.next_if(|word| !word.starts_with('-') && !word.contains('='));
        let command = match named {
            None => &commands[0],
            Some(name) => {
                commands.iter().find(|command| command.name == name).ok_or_else(|| {
                    let near = nearest(&name, commands.iter().map(|command| command.name));
                    Failure::Usage(format!("there is no command '{name}'; did you mean '{near}'?"))
                })?
            }
        };
        let mut args = Self { command, config: Config::default(), values: BTreeMap::new() };
        let mut flags = Vec::new();
        while let Some(word) = line.next() {
            let (key, value) = match word.strip_prefix("--") {
                Some(rest) => match rest.split_once('=') {
                    Some((key, value)) => (args.known(key)?, value.to_owned()),
                    None => {
                        let key = args.known(rest)?;
                        (key, value_of(key, &mut line)?)
                    }
                },
                None => match word.split_once('=') {
                    Some((key, value)) => (args.known(key)?, value.to_owned()),
                    None => return Err(Failure::Usage(format!("'{word}' is no option"))),
                },
            };
            match key {
                Known::Own(option) => drop(args.values.insert(option.key, value)),
                Known::Config(key) => flags.push((key, value)),
            }
        }
        args.fill_config(flags, environment)?;
        Ok(args)
    }

    fn fill_config(
        &mut self,
        flags: Vec<(&'static str, String)>,
        environment: impl IntoIterator<Item = (String, String)>,
    ) -> Result<(), Failure> {
        if let Some(path) = self.values.get("config") {
            let text = std::fs::read_to_string(path)
                .map_err(|error| Failure::Usage(format!("{path}: {error}")))?;
            self.config.set_toml(&text)?;
        }
        let options = environment.into_iter().filter(|(name, _)| !NO_OPTIONS.contains(&&**name));
        self.config.set_environment(options)?;
        for (key, value) in flags {
            self.config.set(key, &value, Origin::Flag)?;
        }
        // The short names of what is set most often, where a command has them in this sense.
        let short: &[(&str, &str, &[&str])] = &[
            ("workers", "N", &["taskmanager.slots", "parallelism.default"]),
            ("parallelism", "N", &["parallelism.default"]),
            ("task-managers", "LIST", &["taskmanager.list"]),
            ("rest", "ADDRESS", &["rest.address"]),
            ("checkpoints", "DIR", &["checkpoint.dir"]),
            ("checkpoint-interval", "TIME", &["checkpoint.interval"]),
        ];
        for (name, value, keys) in short {
            if !self.options().any(|option| option.key == *name && option.value == *value) {
                continue;
            }
            let Some(value) = self.values.get(name) else { continue };
            for key in *keys {
                let set = self.config.set(key, value, Origin::Flag);
                set.map_err(|error| Failure::Usage(format!("--{name}: {error}")))?;
            }
        }
        Ok(())
    }

    /// An option's text, if it was given.
    pub fn text(&self, key: &str) -> Option<&str> {
        self.values.get(key).map(String::as_str)
    }

    /// A whole number, whose digits may be divided by `_`.
    ///
    /// # Errors
    /// The value is no such number.
    pub fn number(&self, key: &str, default: u64) -> Result<u64, Failure> {
        let Some(text) = self.text(key) else { return Ok(default) };
        text.replace('_', "").parse().map_err(|_| {
            Failure::Usage(format!("--{key}: expected a whole number, found '{text}'"))
        })
    }

    /// Whether a flag was given, or `=1`, `=true`.
    ///
    /// # Errors
    /// The value is neither yes nor no.
    pub fn flag(&self, key: &str) -> Result<bool, Failure> {
        match self.text(key) {
            None | Some("0" | "false" | "no") => Ok(false),
            Some("1" | "true" | "yes" | "") => Ok(true),
            Some(other) => {
                Err(Failure::Usage(format!("--{key}: expected 1 or 0, found '{other}'")))
            }
        }
    }

    /// How many workers the job has.
    pub fn workers(&self) -> u32 {
        let slots = self.config.taskmanager.slots;
        slots.map_or_else(|| tidegate::topology::allowed_cpus().len().max(1) as u32, u32::from)
    }

    /// Tells a job where to begin: `--resume`, or `--restore-from` with a checkpoint's id or a savepoint's folder.
    ///
    /// # Errors
    /// Both are given.
    pub fn begin(&self, job: &mut Job) -> Result<(), Failure> {
        let resume = self.flag("resume")?;
        let Some(from) = self.text("restore-from") else {
            job.resume(resume);
            return Ok(());
        };
        if resume {
            let text = "--resume goes on from the last checkpoint, --restore-from from another";
            return Err(Failure::Usage(text.to_owned()));
        }
        match from.parse() {
            Ok(id) => job.restore_from(CheckpointId(id)),
            Err(_) => job.restore_from_savepoint(from),
        };
        Ok(())
    }

    /// Gives an option of the engine a default that everything overrides.
    pub fn default(&mut self, key: &str, value: &str) {
        let set = self.config.set(key, value, Origin::Code);
        set.expect("a command's default is a value of the option");
    }

    fn options(&self) -> impl Iterator<Item = &'static Opt> {
        self.command.options.iter().chain(COMMON)
    }

    fn known(&self, key: &str) -> Result<Known, Failure> {
        let key = key.replace('_', "-");
        if let Some(option) = self.options().find(|option| option.key == key) {
            return Ok(Known::Own(option));
        }
        if let Some(option) = Config::OPTIONS.iter().find(|option| option.key == key) {
            return Ok(Known::Config(option.key));
        }
        let all = self.options().map(|option| option.key);
        let near = nearest(&key, all.chain(Config::OPTIONS.iter().map(|option| option.key)));
        let name = self.command.name;
        Err(Failure::Usage(format!("{name}: there is no option '{key}'; did you mean '{near}'?")))
    }
}

#[derive(Clone, Copy)]
enum Known {
    Own(&'static Opt),
    Config(&'static str),
}

/// The value that follows a key; a flag needs none.
fn value_of(
    key: Known,
    line: &mut std::iter::Peekable<impl Iterator<Item = String>>,
) -> Result<String, Failure> {
    let name = match key {
        Known::Own(option) if option.value.is_empty() => {
            let value = line.next_if(|word| matches!(word.as_str(), "true" | "false"));
            return Ok(value.unwrap_or_default());
        }
        Known::Own(option) => option.key,
        Known::Config(key) => key,
    };
    line.next().ok_or_else(|| Failure::Usage(format!("--{name}: a value is missing")))
}

/// The help: all commands with their options.
pub fn help(commands: &[Command]) -> String {
    let mut text = String::from(
        "tidegate-bench [COMMAND] [--key value | key=value]...\n\n\
         Without a command the first of these runs on the data that ships. The options of the engine go with every\n\
         command under their keys: --checkpoint.interval 200ms. `--print-config` lists them.\n",
    );
    for command in commands {
        text.push_str(&format!("\n{}: {}\n", command.name, command.about));
        for option in command.options.iter().chain(COMMON) {
            let left = format!("--{} {}", option.key, option.value);
            text.push_str(&format!("  {left:<32} {}\n", option.help));
        }
    }
    text
}

/// The name that takes the fewest edits from `name`.
fn nearest<'a>(name: &str, all: impl Iterator<Item = &'a str>) -> &'a str {
    all.min_by_key(|known| edits(name, known)).unwrap_or_default()
}

/// How many characters must be put in, taken out or changed to get from one text to the other.
fn edits(from: &str, to: &str) -> usize {
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (i, a) in from.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, b) in to.bytes().enumerate() {
            let changed = diagonal + usize::from(a != b);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[to.len()]
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const COMMANDS: &[Command] = &[
        Command {
            name: "first",
            about: "x",
            options: &[
                opt("input", "FILE", "x"),
                opt("workers", "N", "x"),
                opt("checkpoint-interval", "TIME", "x"),
                opt("resume", "", "x"),
            ],
        },
        Command { name: "second", about: "x", options: &[opt("events", "N", "x")] },
    ];

    fn parse(line: &str) -> Result<Args, Failure> {
        Args::parse(COMMANDS, line.split_whitespace().map(str::to_owned), [])
    }

    fn refused(line: &str) -> String {
        let failure = parse(line).expect_err("the line is wrong");
        assert_eq!(failure.exit_code(), 2, "{failure}");
        failure.to_string()
    }

    #[test]
    fn all_ways_to_write_an_option_mean_the_same() {
        for line in ["second events=20_000", "second --events 20000", "second --events=2_0000"] {
            let args = parse(line).expect("the line is right");
            assert_eq!(args.number("events", 1).expect("a number"), 20_000, "{line}");
        }
        for line in [
            "checkpoint_interval=2s",
            "--checkpoint-interval 2s",
            "--checkpoint.interval=2s",
            "first checkpoint.interval=2s",
        ] {
            let args = parse(line).expect("the line is right");
            assert_eq!(args.command.name, "first");
            assert_eq!(args.config.checkpoint.interval, Some(Duration::from_secs(2)), "{line}");
        }
    }

    #[test]
    fn a_flag_takes_no_value_but_may_have_one() {
        for (line, is_set) in [
            ("--resume --input x", true),
            ("resume=1 input=x", true),
            ("--resume true input=x", true),
            ("--resume false input=x", false),
            ("resume=0 input=x", false),
            ("input=x", false),
        ] {
            let args = parse(line).expect("the line is right");
            assert_eq!(args.flag("resume").expect("yes or no"), is_set, "{line}");
            assert_eq!(args.text("input"), Some("x"), "{line}");
        }
    }

    #[test]
    fn workers_are_slots_and_parallelism() {
        let args = parse("--workers 3").expect("the line is right");
        assert_eq!((args.workers(), args.config.parallelism.default.map(u32::from)), (3, Some(3)));
        assert!(refused("--workers 0").contains("a whole number from 1"));
    }

    #[test]
    fn what_is_unknown_is_refused_naming_the_nearest() {
        assert_eq!(refused("frist"), "there is no command 'frist'; did you mean 'first'?");
        let text = "first: there is no option 'worker'; did you mean 'workers'?";
        assert_eq!(refused("--worker 2"), text);
        assert!(refused("first checkpoint.intervall=1s").contains("'checkpoint.interval'"));
        assert_eq!(refused("first --input"), "--input: a value is missing");
        assert_eq!(refused("first input"), "'input' is no option");
    }

    #[test]
    fn the_command_line_overrides_the_environment_but_for_names_of_data() {
        let var = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let environment =
            [var("TIDEGATE_FLIGHTS", "x.csv"), var("TIDEGATE_CHECKPOINT_INTERVAL", "7s")];
        let mut args = Args::parse(COMMANDS, [], environment.clone()).expect("is right");
        args.default("checkpoint.interval", "1s");
        assert_eq!(args.config.checkpoint.interval, Some(Duration::from_secs(7)));
        let line = ["checkpoint.interval=2s".to_owned()];
        let args = Args::parse(COMMANDS, line, environment).expect("is right");
        assert_eq!(args.config.checkpoint.interval, Some(Duration::from_secs(2)));
    }
}
