//! SIGKILL at random moments, repeatedly on one state directory: every answered execution has its start and its end on
//! record, and its artifacts exist.
//!
//! `RINGFENCE_KILL_ROUNDS` sets the number of rounds, `RINGFENCE_KILL_SEED` repeats the random choices of an earlier
//! run.

use super::{
    agent::{Agent, Ended},
    state::State,
};
use crate::client::*;
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

const ROUNDS: u64 = 20;
const CALLS: u64 = 8;
/// Maximum delay of the kill after the last awaited answer.
const DELAY_MICROSECONDS: u64 = 60_000;
const SECRET: &str = "a-secret-of-the-killed-4711";

/// SplitMix64, so that a failure can be repeated with its seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % below
    }
}

#[derive(Debug, Default)]
struct Tally {
    rounds: u64,
    answers: u64,
    /// Answered executions without a start or an end on record.
    lost: u64,
    /// Ends without a start, second starts or ends, ends that contradict the answer, and chains that do not verify.
    wrong: u64,
    /// Executions that were started and cut off without an end.
    cut: u64,
}

/// claim: [REC-2]
#[test]
fn every_call_answered_before_a_kill_is_recorded() {
    let rounds = env_number("RINGFENCE_KILL_ROUNDS").unwrap_or(ROUNDS);
    rounds_of(rounds, "process");
}

/// claim: [REC-2]
#[test]
fn every_call_answered_before_a_kill_is_recorded_with_power_durability() {
    let rounds = env_number("RINGFENCE_KILL_ROUNDS").unwrap_or(ROUNDS);
    rounds_of(rounds.div_ceil(4), "power");
}

/// The control: a record in memory loses every answer, and the same check counts them.
#[test]
fn an_in_memory_record_is_detected_as_lost() {
    let state = State::new("kill-memory")
        .with("RINGFENCE_AUDIT_STORE", "memory")
        .with_secrets([("TOKEN", SECRET)]);
    let (mut dice, mut tally) = (Dice(4711), Tally::default());
    while tally.answers == 0 && tally.rounds < 10 {
        let ended = one_round(&state, &mut dice, &format!("39.4711{:03}", tally.rounds));
        tally.rounds += 1;
        assert!(check(&state, &ended, &mut tally).is_empty());
    }
    assert!(tally.answers > 0 && tally.lost == tally.answers, "{tally:?}");
}

fn rounds_of(rounds: u64, durability: &str) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos();
    let seed = env_number("RINGFENCE_KILL_SEED").unwrap_or_else(|| u64::try_from(now & 0xffff_ffff).unwrap());
    println!("durability {durability}, seed {seed}");
    let mut dice = Dice(seed);
    let name = format!("kill-{durability}");
    let state = State::new(&name)
        .with("RINGFENCE_AUDIT_DURABILITY", durability)
        .with_secrets([("TOKEN", SECRET)]);
    let mut tally = Tally::default();
    let mut kept: Vec<Value> = Vec::new();
    for round in 0..rounds {
        let ended = one_round(
            &state,
            &mut dice,
            &format!("3{}.{seed}{round:03}", durability.len()),
        );
        tally.rounds += 1;
        kept.extend(check(&state, &ended, &mut tally));
    }
    // A server that is not killed finds all artifacts, and ends successfully.
    let mut last = state.serve();
    for result in &kept {
        for artifact in list_of(&result["artifacts"]) {
            let read = last.read_resource(&artifact["uri"]);
            assert!(read["result"]["contents"][0].is_object(), "{read}");
            state.assert_artifact(result, artifact);
        }
    }
    assert!(last.close().status.success());
    state.assert_verifies();
    println!("{tally:?}");
    assert_eq!((tally.lost, tally.wrong), (0, 0), "seed {seed}");
    assert!(
        tally.answers > 0 || rounds < 4,
        "no answer came in {rounds} rounds: nothing was shown"
    );
}

/// Starts a server, sends all calls at once, and kills it at a random moment.
fn one_round(state: &State, dice: &mut Dice, mark: &str) -> Ended {
    let cold = if dice.roll(2) == 0 { "0" } else { "1" };
    let mut command = state.command(&["serve"]);
    command.env("RINGFENCE_WARM_READY", cold);
    let mut agent = Agent::start(command);
    agent.send_initialize();
    // Each kind of program once; one of them does not end in time by itself.
    let first = dice.roll(CALLS);
    for number in 0..CALLS {
        agent.send_run(program((number + first) % CALLS, mark));
    }
    // One of the answers is that of the handshake.
    let answers = usize::try_from(dice.roll(CALLS)).unwrap();
    let begun = Instant::now();
    let came = agent.read_until(Duration::from_secs(20), |agent| agent.answer_count() > answers);
    assert!(came, "a server that lives answers");
    let delay = Duration::from_micros(dice.roll(DELAY_MICROSECONDS));
    let until = Instant::now() + delay;
    agent.read_until(delay, |_| Instant::now() >= until);
    let process_tree = process_tree(agent.pid());
    let ended = agent.kill();
    let is_gone = || process_tree.iter().all(|process| !is_alive(process)) && processes_with(mark).is_empty();
    assert!(
        becomes_true_within(Duration::from_secs(20), is_gone),
        "something of the killed server lives on, {:?} after its start: {:?}, {:?}",
        begun.elapsed(),
        process_tree
            .iter()
            .filter(|process| is_alive(process))
            .collect::<Vec<_>>(),
        processes_with(mark)
    );
    ended
}

/// Programs with several languages, secrets, artifacts and failures, and one that would keep running.
fn program(kind: u64, mark: &str) -> Value {
    match kind {
        0 => json!({"code": "print(6 * 7)"}),
        1 => json!({"language": "node", "code": "console.log(6 * 7)"}),
        2 => json!({"language": "shell", "code": "echo $TOKEN > kept.txt; echo done", "secrets": ["TOKEN"]}),
        3 => {
            json!({"code": "import os\nopen('a.txt', 'w').write('a' * 40000)\nopen('b.bin', 'wb').write(os.urandom(70000))"})
        }
        4 => json!({"code": "1 / 0", "secrets": ["TOKEN"]}),
        5 => json!({"language": "shell", "code": format!("sleep {mark}"), "timeout_seconds": 20}),
        6 => json!({"language": "typescript", "code": "const n: number = 42; console.log(n)"}),
        _ => json!({"code": "print(1)", "secrets": ["NOT_THERE"]}),
    }
}

/// Compares the answers with the record, and returns the results that have artifacts.
fn check(state: &State, ended: &Ended, tally: &mut Tally) -> Vec<Value> {
    // A server killed before it had a key has neither a record nor answers.
    let answers = ended.answers.values().filter_map(|answer| {
        let answer = &answer["result"]["structuredContent"];
        answer["execution_id"].is_string().then(|| answer.clone())
    });
    let answers: Vec<Value> = answers.collect();
    tally.answers += answers.len() as u64;
    if state.is_blank() {
        tally.lost += answers.len() as u64;
        return Vec::new();
    }
    let records = state.records();
    if let Some(bad) = state.verdict().bad {
        // Without records, the server was killed before its first one, which every chain has.
        tally.wrong += u64::from(!records.is_empty());
        println!("{bad} of {}", records.len());
    }
    let mut ends: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut begun = BTreeSet::new();
    for record in records {
        let Some(id) = record.execution_id else { continue };
        match record.action.as_str() {
            "execution.started" => tally.wrong += u64::from(!begun.insert(id)),
            // A refused execution has no start.
            "execution.refused" => {
                begun.insert(id.clone());
                ends.entry(id).or_default().push(record.action);
            }
            action if action.starts_with("execution.") => {
                ends.entry(id).or_default().push(record.action);
            }
            _ => {}
        }
    }
    let wrong = |(id, ends): &(&String, &Vec<String>)| !begun.contains(*id) || ends.len() != 1;
    tally.wrong += ends.iter().filter(wrong).count() as u64;
    tally.cut = begun.iter().filter(|id| !ends.contains_key(*id)).count() as u64;
    let mut kept = Vec::new();
    for answer in answers {
        let id = text_of(&answer["execution_id"]);
        let is_there = begun.contains(id) && ends.contains_key(id);
        let is_right = is_there && ends[id][0] == end_of(&answer);
        if !is_right {
            println!("{id}: {:?} for {answer}", ends.get(id));
        }
        tally.lost += u64::from(!is_there);
        tally.wrong += u64::from(is_there && !is_right);
        let artifacts = answer["artifacts"].as_array().into_iter().flatten();
        artifacts.for_each(|artifact| state.assert_artifact(&answer, artifact));
        if answer["artifacts"]
            .as_array()
            .is_some_and(|list| !list.is_empty())
        {
            kept.push(answer);
        }
    }
    kept
}

/// The end record that belongs to an answer.
fn end_of(answer: &Value) -> &'static str {
    match (&answer["exit"]["kind"], &answer["success"]) {
        (Value::Null, _) => "execution.refused",
        (kind, _) if kind == "timeout" => "execution.timeout",
        (_, Value::Bool(true)) => "execution.completed",
        _ => "execution.failed",
    }
}

/// A pid with its start time, field 22 of proc_pid_stat(5), because the pid may be reused.
type Process = (u32, String);

/// Returns a process and all its descendants.
fn process_tree(server: u32) -> Vec<Process> {
    let pids = descendants(server).into_iter().chain([server]);
    pids.filter_map(|pid| Some((pid, proc_stat(pid, 22)?))).collect()
}

fn is_alive((pid, start): &Process) -> bool {
    proc_stat(*pid, 22).as_ref() == Some(start) && is_running(*pid)
}

/// A database file without a first commit is a blank record; answers given before it count as lost.
#[test]
fn a_database_created_and_never_written_is_blank() {
    let state = State::new("kill-blank");
    assert!(state.is_blank());
    state.serve().call_and_close();
    assert!(!state.is_blank());
    fs::remove_file(state.database()).unwrap();
    fs::File::create(state.database()).unwrap();
    assert!(state.is_blank());
}
