//! A line of tasks, each with the two machines, and the least coordinator that can end it.

use super::rig::Rig;
use crate::channel::event::Barrier;
use crate::id::CheckpointId;
use crate::task::finish::{Config, Input, Output};

/// Source, `stages` tasks that emit on commit, and a sink. Returns how many checkpoints the end took.
fn checkpoints_to_end(stages: usize, drain_hold: bool) -> u64 {
    let mut tasks: Vec<Rig> = (0..stages + 2)
        .map(|at| {
            let config = Config::new(usize::from(at > 0), usize::from(at < stages + 1));
            let emits_on_commit = at > 0 && at <= stages;
            Rig::new(Config { emits_on_commit, drain_hold, ..config })
        })
        .collect();
    let mut line = Line { seen: vec![0; tasks.len()], answered: vec![0; tasks.len()] };
    tasks[0].feed(Input::SourceEnded);
    let mut n = 0;
    loop {
        line.settle(&mut tasks);
        if tasks.iter().all(|task| task.finish.has_left()) {
            return n;
        }
        n += 1;
        assert!(n <= 20, "the line does not end");
        let awaits = |task: &Rig| {
            let last = |o: &&Output| matches!(o, Output::AwaitsCheckpoint(_));
            task.log.iter().rev().find(last) == Some(&Output::AwaitsCheckpoint(true))
        };
        assert!(tasks.iter().any(awaits), "nobody awaits a checkpoint, yet the line has not ended");
        let running: Vec<usize> =
            (0..tasks.len()).filter(|&at| !tasks[at].finish.has_left()).collect();
        // The first that runs has no running predecessor; the others get the barrier from theirs.
        tasks[running[0]].trigger(super::barrier(n));
        line.settle(&mut tasks);
        for &at in &running {
            assert!(tasks[at].acks.contains(&n), "task {at} took no part in {n}");
            tasks[at].complete(n);
        }
    }
}

/// Moves what stands in each lane to the next task, and answers requests.
struct Line {
    seen: Vec<usize>,
    answered: Vec<usize>,
}

impl Line {
    fn settle(&mut self, tasks: &mut [Rig]) {
        loop {
            let mut moved = false;
            for at in 0..tasks.len() {
                while self.answered[at] < tasks[at].asks() {
                    self.answered[at] += 1;
                    tasks[at].feed(Input::Granted);
                    moved = true;
                }
                let lane: Vec<String> = tasks[at]
                    .lanes
                    .split_whitespace()
                    .skip(self.seen[at])
                    .map(str::to_owned)
                    .collect();
                if at + 1 == tasks.len() {
                    continue;
                }
                for what in lane {
                    self.seen[at] += 1;
                    moved = true;
                    self.deliver(tasks, at, &what);
                }
            }
            if !moved {
                return;
            }
        }
    }

    fn deliver(&self, tasks: &mut [Rig], from: usize, what: &str) {
        let to = from + 1;
        match what.split_at(1) {
            ("D", _) => {
                tasks[to].end_of_data(0, true);
                tasks[from].feed(Input::EndOfDataAcked { lane: 0 });
            }
            ("b", n) => {
                let checkpoint = CheckpointId(n.parse().expect("a number"));
                tasks[to].barrier(0, Barrier { checkpoint, ..super::barrier(0) });
            }
            ("E", _) => tasks[to].end_of_partition(0),
            ("c", _) => {
                assert!(!tasks[to].finish.operators_finished(), "a record after its end");
            }
            other => panic!("unknown {other:?}"),
        }
    }
}

#[test]
fn ft_27_a_cascade_of_commit_stages_ends_within_one_checkpoint_more_than_it_has_stages() {
    for drain_hold in [true, false] {
        for stages in 0..=5 {
            let taken = checkpoints_to_end(stages, drain_hold);
            assert!(taken <= stages as u64 + 1, "{stages} stages took {taken}");
        }
    }
}
