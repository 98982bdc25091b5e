//! J01 to J13: job masters and resource manager, and a model of three copies under a hostile network.

use super::world::{Letter, World};
use super::*;
use crate::control::blocklist::listeners::BlocklistMessage;
use crate::control::blocklist::runner::StrategyMode;

const LONG: i64 = 1_000_000;

fn add_at(world: &mut World, job: u64, n: &str, cause: &str, timestamp: i64) {
    let mut new = item_of(node(n), M, LONG, cause);
    new.version.timestamp = timestamp;
    new.version.origin_id = job;
    world.on_jm(job, |jm, now, out| jm.add_new_blocklisted_items(now, [new], out));
}

fn block(world: &mut World, n: &str) {
    world
        .on_rm(|rm, now, out| rm.add_new_blocklisted_items(now, vec![wish(node(n), M, LONG)], out));
}

fn remove(world: &mut World, n: &str) {
    world.on_rm(|rm, now, out| rm.remove_items(now, &[node(n)], out));
}

fn told(world: &World, job: u64, to_resource_manager: bool) -> Vec<Vec<String>> {
    let to = |l: &&Letter| l.job == JobId(job) && l.to_resource_manager == to_resource_manager;
    let ids = |letter: &Letter| match &letter.message {
        BlocklistMessage::Notify(notice) => {
            notice.items.iter().map(|item| item.key.identifier().to_owned()).collect()
        }
        BlocklistMessage::Acknowledge { .. } => Vec::new(),
    };
    world.notices.iter().filter(to).map(ids).collect()
}

#[test]
fn j01_a_new_resource_manager_gets_everything_and_the_old_one_nothing_more() {
    let mut world = World::new(1);
    add_at(&mut world, 1, "n1", "c", 1);
    world.settle(20);
    assert_eq!(world.agreed(), ["n1"]);
    let to_old = told(&world, 1, true).len();
    world.fail_over();
    add_at(&mut world, 1, "n2", "c", 2);
    assert_eq!(told(&world, 1, true).len(), to_old, "nobody is connected");
    world.connect(1);
    assert_eq!(told(&world, 1, true)[to_old], ["n1", "n2"]);
    world.settle(20);
    assert_eq!(world.agreed(), ["n1", "n2"]);
}

#[test]
fn j02_all_registered_job_masters_are_told() {
    let mut world = World::new(2);
    block(&mut world, "n1");
    world.settle(20);
    assert_eq!(world.agreed(), ["n1"]);
    world.disconnect(1);
    block(&mut world, "n2");
    world.settle(20);
    let held = |job| world.jms[&JobId(job)].get_all_items().len();
    assert_eq!((held(1), held(2)), (1, 2));
}

#[test]
fn j03_an_item_costs_at_most_one_notice_per_job_master() {
    for jobs in 1..6 {
        let mut world = World::new(jobs);
        add_at(&mut world, 1, "n", "c", 1);
        world.settle(50);
        assert_eq!(world.agreed(), ["n"]);
        assert_eq!(
            world.notices.len() as u64,
            jobs,
            "one to the resource manager, one to each other"
        );
        assert!(told(&world, 1, false).is_empty(), "its maker is not told");
    }
}

#[test]
fn j04_crossing_updates_end_and_agree() {
    let mut world = World::new(2);
    add_at(&mut world, 1, "n", "cause1", 5);
    add_at(&mut world, 2, "n", "cause2", 5);
    world.settle(40);
    assert_eq!(world.agreed(), ["n"]);
    assert!(world.notices.len() <= 5, "{}", world.notices.len());
}

#[test]
fn b01_items_that_tie_do_not_ping_pong() {
    let mut world = World::new(2);
    for job in [1, 2] {
        let tie = item_of(node("n"), M, LONG, &format!("cause{job}"));
        world.on_jm(job, |jm, now, out| jm.add_new_blocklisted_items(now, [tie], out));
    }
    world.settle(40);
    assert_eq!(world.agreed(), ["n"]);
    let cause = world.copies()[0][0].cause.message().to_owned();
    assert_eq!(cause, "cause2", "the same one wins everywhere");
}

#[test]
fn j05_a_registering_job_master_receives_everything() {
    let mut world = World::new(1);
    block(&mut world, "n1");
    world.settle(20);
    let mut jm = world::new_job_master(2, Vec::new(), StrategyMode::Enforce);
    jm.start(at(0)).expect("it is new");
    world.jms.insert(JobId(2), jm);
    let before = world.context_calls.0;
    world.connect(2);
    world.settle(20);
    assert_eq!(world.agreed(), ["n1"]);
    assert_eq!(world.context_calls.0, before + 1, "it acted on its slots");
}

#[test]
fn j07_a_restarted_resource_manager_becomes_the_union() {
    let mut world = World::new(2);
    world.disconnect(1);
    world.disconnect(2);
    add_at(&mut world, 1, "n1", "c", 1);
    add_at(&mut world, 2, "n2", "c", 1);
    world.fail_over();
    world.connect(1);
    world.connect(2);
    world.settle(50);
    assert_eq!(world.agreed(), ["n1", "n2"]);
}

#[test]
fn j08_a_removed_item_is_not_resurrected_by_a_partitioned_job_master() {
    let mut world = World::new(2);
    block(&mut world, "n");
    world.settle(20);
    world.disconnect(2);
    remove(&mut world, "n");
    world.settle(20);
    assert_eq!(world.jms[&JobId(2)].get_all_items().len(), 1, "it has not heard");
    world.connect(2);
    world.settle(20);
    assert!(world.agreed().is_empty());
}

#[test]
fn j09_a_block_after_a_removal_holds_everywhere() {
    let mut world = World::new(2);
    block(&mut world, "n");
    world.settle(20);
    remove(&mut world, "n");
    world.settle(20);
    assert!(world.agreed().is_empty());
    add_at(&mut world, 2, "n", "again", 1);
    world.settle(20);
    assert_eq!(world.agreed(), ["n"]);
}

#[test]
fn j10_messages_of_an_old_leader_change_nothing() {
    let mut world = World::new(2);
    block(&mut world, "n1");
    let late: Vec<Letter> = std::mem::take(&mut world.letters);
    world.fail_over();
    world.connect(1);
    world.connect(2);
    for letter in late {
        world.deliver(letter);
    }
    world.settle(20);
    assert!(world.agreed().is_empty());
    assert_eq!(world.jms[&JobId(1)].counters().stale_messages, 1);
}

#[test]
fn j11_a_job_master_whose_blocklist_is_off_ignores_everything() {
    let mut world = World::new(1);
    let off = world::new_job_master(2, Vec::new(), StrategyMode::Enforce);
    world.jms.insert(JobId(2), off);
    world.connect(2);
    block(&mut world, "n");
    world.settle(20);
    let jm = &world.jms[&JobId(2)];
    assert!(jm.get_all_items().is_empty() && jm.deadline().is_none());
    assert_eq!(jm.counters().ignored_while_disabled, 1);
    assert_eq!(world.jms[&JobId(1)].get_all_items().len(), 1);
}

#[test]
fn j12_each_side_ends_items_by_itself() {
    let mut world = World::new(2);
    world.on_rm(|rm, now, out| {
        rm.add_new_blocklisted_items(now, vec![wish(node("n"), M, 1000)], out)
    });
    world.settle(20);
    let notices = world.notices.len();
    world.now = 1000;
    world.tick_all();
    assert!(world.agreed().is_empty() && world.letters.is_empty());
    assert_eq!((world.notices.len(), world.context_calls.1), (notices, 3));
}

#[test]
fn b03_an_update_alone_is_told() {
    let mut world = World::new(2);
    block(&mut world, "n");
    world.settle(20);
    world.on_rm(|rm, now, out| {
        rm.add_new_blocklisted_items(now, vec![wish(node("n"), M, 2 * LONG)], out)
    });
    world.settle(20);
    assert_eq!(world.agreed(), ["n"]);
    assert_eq!(world.copies()[2][0].end(), EpochMillis(2 * LONG));
}

#[test]
fn a_refused_item_is_taken_back_from_the_job_master_that_made_it() {
    let mut world = World::new(1);
    for (tm, node) in [("tm1", "n1"), ("tm2", "n2"), ("tm3", "n3")] {
        world.rm.register_task_manager(&location(tm, node));
    }
    block(&mut world, "n1");
    world.settle(20);
    let mut automatic = item(node("n2"), M, LONG);
    automatic.origin = Origin::Strategy { job: JobId(1), rule: "r".into() };
    world.on_jm(1, |jm, now, out| jm.add_new_blocklisted_items(now, [automatic], out));
    world.settle(20);
    assert_eq!(world.agreed(), ["n1"]);
}

#[test]
fn changes_while_a_notice_is_under_way_wait_as_one() {
    let mut world = World::new(1);
    for n in 0..100 {
        add_at(&mut world, 1, &format!("n{n}"), "c", 1);
    }
    assert_eq!(world.notices.len(), 1, "the first is under way, the rest waits");
    world.settle(20);
    assert_eq!(world.notices.len(), 2);
    assert_eq!(world.agreed().len(), 100);
}

/// A small generator of its own, so that a seed means the same schedule for ever.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) * sides) >> 31
    }
}

/// How often the interesting things happened.
#[derive(Debug, Default)]
struct Reached {
    crossing_updates: u64,
    removal_against_partition: u64,
    resurrection_attempt: u64,
    expiry: u64,
    lost: u64,
    duplicated: u64,
    reordered: u64,
    failovers: u64,
    lost_between_add_and_sync: u64,
    stale: u64,
    agreed_on_something: u64,
}

/// What went wrong once, by seed: a joined item outlived what a resource manager held of it (46); a removal left a
/// part that had ended (248); an item unseen behind a longer one was not told (2955).
const FOUND: [u64; 3] = [46, 248, 2955];

fn run_schedule(seed: u64, reached: &mut Reached) {
    let mut dice = Dice(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0xD1B5_4A32_D192_ED03);
    let mut world = World::new(2);
    let mut connected = [false, true, true];
    let mut removed_while_apart = [false; 3];
    for _ in 0..12 + dice.roll(20) {
        let job = 1 + dice.roll(2);
        match dice.roll(16) {
            0..=2 => {
                let new = random_wish(&mut dice, world.now);
                let under_way =
                    world.letters.iter().any(|l| l.to_resource_manager && l.job.0 != job);
                reached.crossing_updates += u64::from(under_way);
                let mut made =
                    item_of(new.key, new.action, new.end_timestamp.map_or(0, |e| e.0), "x");
                made.timestamp = EpochMillis(world.now as i64);
                made.version.timestamp = world.now as i64;
                made.version.origin_id = job;
                made.version.seq = dice.roll(1 << 30);
                world.on_jm(job, |jm, now, out| jm.add_new_blocklisted_items(now, [made], out));
            }
            3 | 4 => {
                let new = random_wish(&mut dice, world.now);
                world.on_rm(|rm, now, out| rm.add_new_blocklisted_items(now, vec![new], out));
            }
            5 => {
                let key = node(["a", "b"][dice.roll(2) as usize]);
                let gone = world.on_rm(|rm, now, out| rm.remove_items(now, &[key], out));
                for apart in [1, 2].into_iter().filter(|&j| !connected[j as usize]) {
                    let happened =
                        !gone.is_empty() && !world.jms[&JobId(apart)].get_all_items().is_empty();
                    reached.removal_against_partition += u64::from(happened);
                    removed_while_apart[apart as usize] |= happened;
                }
            }
            6 => {
                if connected[job as usize] {
                    world.disconnect(job);
                } else {
                    world.connect(job);
                    let again = std::mem::take(&mut removed_while_apart[job as usize]);
                    reached.resurrection_attempt += u64::from(again);
                }
                connected[job as usize] = !connected[job as usize];
            }
            7 if dice.roll(4) == 0 => {
                let unsent = world.letters.iter().any(|l| l.to_resource_manager);
                reached.lost_between_add_and_sync += u64::from(unsent);
                reached.failovers += 1;
                world.fail_over();
                connected = [false; 3];
            }
            8 if !world.letters.is_empty() => {
                let which = dice.roll(world.letters.len() as u64) as usize;
                world.letters.remove(which);
                reached.lost += 1;
            }
            9 if !world.letters.is_empty() => {
                let which = dice.roll(world.letters.len() as u64) as usize;
                let twice = world.letters[which].clone();
                world.letters.push(twice);
                reached.duplicated += 1;
            }
            10 => {
                world.now += dice.roll(40);
                let before = world.context_calls.1;
                world.tick_all();
                reached.expiry += (world.context_calls.1 - before) as u64;
            }
            _ if !world.letters.is_empty() => {
                let which = dice.roll(world.letters.len() as u64) as usize;
                reached.reordered += u64::from(which > 0);
                let letter = world.letters.remove(which);
                world.deliver(letter);
            }
            _ => {}
        }
    }
    // The faults end: everybody connects, what was lost is sent again, everything arrives.
    for job in [1, 2] {
        if !connected[job as usize] {
            world.connect(job);
        }
    }
    world.settle(400);
    world.now += 31_000;
    let stale = world.jms.values().map(|jm| jm.counters().stale_messages).sum::<u64>();
    reached.stale += stale;
    world.tick_all();
    world.settle(400);
    let copies = world.copies();
    let brief =
        |i: &BlocklistedItem| format!("{} {:?} to {} {:?}", i.key, i.action, i.end(), i.version);
    let told: Vec<Vec<String>> = copies.iter().map(|c| c.iter().map(brief).collect()).collect();
    assert!(copies.iter().all(|copy| *copy == copies[0]), "SEED={seed}: {told:#?}");
    reached.agreed_on_something += u64::from(!copies[0].is_empty());
}

fn random_wish(dice: &mut Dice, now: u64) -> NewItem {
    let key = node(["a", "b"][dice.roll(2) as usize]);
    let end = now + [5, 30, 100_000, 200_000][dice.roll(4) as usize];
    wish(key, [M, E][dice.roll(2) as usize], end as i64)
}

#[test]
fn three_copies_converge_after_any_schedule() {
    let mut reached = Reached::default();
    if let Some(seed) = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()) {
        return run_schedule(seed, &mut reached);
    }
    for seed in FOUND.into_iter().chain(1000..101_000) {
        run_schedule(seed, &mut reached);
    }
    let Reached {
        crossing_updates,
        removal_against_partition,
        resurrection_attempt,
        expiry,
        lost,
        duplicated,
        reordered,
        failovers,
        lost_between_add_and_sync,
        stale,
        agreed_on_something,
    } = reached;
    let counters = [
        crossing_updates,
        removal_against_partition,
        resurrection_attempt,
        expiry,
        lost,
        duplicated,
        reordered,
        failovers,
        lost_between_add_and_sync,
        stale,
        agreed_on_something,
    ];
    assert!(
        counters.iter().all(|&count| count > 1000),
        "something was hardly reached: {counters:?}"
    );
}
