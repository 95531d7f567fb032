//! Terminals and readers in processes of their own.
//!
//! ```text
//! parent                                    child
//! starts it, with its task        ────►     opens connections, says `ready`
//! `measure`                       ────►     counts
//! `end`, or the pipe is closed    ────►     ends, says what it did: one line
//! ```
//!
//! A child that fails says why instead, and the run fails. One that the run kills says nothing, and
//! another one has its task.

use std::io::{self, BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread;
use std::time::Duration;

use esker_lab_measure::background::joined;
use serde_json::{Value, json};

use super::counters::syncs;
use super::mode::{self, Mode, Place};
use super::readers::{self, Met};
use super::shared::{Phase, Shared};
use super::tally::Tally;
use super::terminals::work;
use super::{Plan, ending};
use crate::stores::bench::Program;
use crate::{Error, Result};

/// What a process of a run does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    mode: Mode,
    folder: PathBuf,
    /// The number of its first terminal.
    first: u32,
    /// Its terminals, each a thread with a connection.
    workers: u32,
    /// Its reads of the status, each second.
    readers: u32,
    warehouses: u32,
    is_small: bool,
    cache_mib: u32,
    seed: u64,
}

impl Task {
    /// The processes of a plan: those with terminals, and those that only read.
    fn all(plan: &Plan, place: &Place) -> Vec<Self> {
        let task = |first, workers, readers| Self {
            mode: place.mode,
            folder: place.folder.clone(),
            first,
            workers,
            readers,
            warehouses: plan.warehouses,
            is_small: plan.is_small,
            cache_mib: plan.cache_mib,
            seed: plan.seed,
        };
        let writing = (0..plan.processes).map(|at| task(at * plan.workers, plan.workers, 0));
        writing.chain((0..plan.reader_processes).map(|_| task(0, 0, plan.readers))).collect()
    }

    fn plan(&self) -> Plan {
        Plan {
            modes: vec![self.mode],
            workload: super::Workload::Tpcc,
            is_small: self.is_small,
            warehouses: self.warehouses,
            workers: self.workers,
            processes: 0,
            reader_processes: 0,
            kills: 0,
            program: None,
            readers: self.readers,
            held_reader: false,
            warmup: Duration::ZERO,
            duration: Duration::ZERO,
            rounds: 1,
            cache_mib: self.cache_mib,
            seed: self.seed,
            folder: self.folder.clone(),
        }
    }

    fn to_json(&self) -> String {
        json!({
            "mode": self.mode.as_str(),
            "folder": self.folder.to_string_lossy(),
            "first": self.first,
            "workers": self.workers,
            "readers": self.readers,
            "warehouses": self.warehouses,
            "is_small": self.is_small,
            "cache_mib": self.cache_mib,
            "seed": self.seed,
        })
        .to_string()
    }

    fn from_json(text: &str) -> Option<Self> {
        let value: Value = serde_json::from_str(text).ok()?;
        let number = |field: &str| u32::try_from(value.get(field)?.as_u64()?).ok();
        Some(Self {
            mode: Mode::parse(value.get("mode")?.as_str()?)?,
            folder: PathBuf::from(value.get("folder")?.as_str()?),
            first: number("first")?,
            workers: number("workers")?,
            readers: number("readers")?,
            warehouses: number("warehouses")?,
            is_small: value.get("is_small")?.as_bool()?,
            cache_mib: number("cache_mib")?,
            seed: value.get("seed")?.as_u64()?,
        })
    }
}

/// What processes did while it counted.
#[derive(Debug, Default)]
pub struct Done {
    /// Their transactions.
    pub tally: Tally,
    /// Their reads.
    pub met: Met,
    /// Their syncs of the database.
    pub syncs: u64,
}

impl Done {
    /// Adds those of another process.
    pub fn add(&mut self, other: &Self) {
        self.tally.add(&other.tally);
        self.met.add(&other.met);
        self.syncs += other.syncs;
    }

    fn to_json(&self) -> Value {
        json!({ "tally": self.tally.to_json(), "met": self.met.to_json(), "syncs": self.syncs })
    }

    fn from_json(value: &Value) -> Option<Self> {
        Some(Self {
            tally: Tally::from_json(value.get("tally")?)?,
            met: Met::from_json(value.get("met")?)?,
            syncs: value.get("syncs")?.as_u64()?,
        })
    }
}

/// A process of a run, in that process.
///
/// # Errors
/// The error of the run, which was sent to the parent too; or [`Error::Input`] where the task
/// cannot be read.
pub fn main(task: &str) -> Result<()> {
    let unusable = || Error::Input("the task of this process cannot be read".to_owned());
    let task = Task::from_json(task).ok_or_else(unusable)?;
    let done = perform(&task);
    let line = match &done {
        Ok(done) => done.to_json(),
        Err(error) => json!({ "failed": error.to_string() }),
    };
    say(&line.to_string())?;
    done.map(drop)
}

fn say(line: &str) -> Result<()> {
    let mut output = io::stdout().lock();
    writeln!(output, "{line}")
        .and_then(|()| output.flush())
        .map_err(Error::system("write to standard output"))
}

fn perform(task: &Task) -> Result<Done> {
    mode::link()?;
    let (plan, shared) = (task.plan(), Shared::default());
    let place = Place { mode: task.mode, folder: task.folder.clone(), cache_mib: task.cache_mib };
    let own = place.open()?;
    say(r#"{"ready":true}"#)?;
    thread::scope(|scope| {
        let worker = |number| {
            let (plan, place, shared) = (&plan, &place, &shared);
            scope.spawn(move || ending(shared, || work(plan, place, task.first + number, shared)))
        };
        let workers: Vec<_> = (0..task.workers).map(worker).collect();
        let status =
            scope.spawn(|| ending(&shared, || readers::status(&place, task.readers, &shared)));
        let mut before = 0;
        for line in io::stdin().lines().map_while(io::Result::ok) {
            if line != "measure" {
                break;
            }
            before = syncs(&place, &own);
            shared.enter(Phase::Measuring);
        }
        shared.enter(Phase::Ending);
        let syncs = syncs(&place, &own).saturating_sub(before);
        let mut done = Done { syncs, ..Done::default() };
        for worker in workers {
            done.tally.add(&joined(worker)?);
        }
        done.met = joined(status)?;
        Ok(done)
    })
}

/// The processes of a run, in the parent. Those that are dropped end, because their pipes close.
#[derive(Debug, Default)]
pub struct Processes {
    program: Option<Program>,
    all: Vec<Process>,
}

#[derive(Debug)]
struct Process {
    task: Task,
    child: Child,
    /// What tells it the phase.
    tells: ChildStdin,
    says: io::Lines<BufReader<ChildStdout>>,
}

impl Processes {
    /// Starts those of a plan, and waits until all of them are ready.
    ///
    /// # Errors
    /// [`Error::System`] where they cannot be started; what one said where it failed.
    pub fn start(plan: &Plan, place: &Place) -> Result<Self> {
        let mut processes = Self { program: plan.program.clone(), all: Vec::new() };
        for task in Task::all(plan, place) {
            let process = processes.another(task)?;
            processes.all.push(process);
        }
        processes.all.iter_mut().try_for_each(|process| process.hear().map(drop))?;
        Ok(processes)
    }

    fn another(&self, task: Task) -> Result<Process> {
        let none = || Error::Input("this program cannot start other processes".to_owned());
        Process::start(self.program.as_ref().ok_or_else(none)?, task)
    }

    /// The number of processes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Kills one, whatever it does, and lets another one go on with its task. What it did does not
    /// count.
    pub fn replace(&mut self, at: usize) -> Result<()> {
        let Some(killed) = self.all.get_mut(at) else { return Ok(()) };
        killed.end();
        let task = killed.task.clone();
        let mut process = self.another(task)?;
        process.hear()?;
        process.tell("measure")?;
        if let Some(killed) = self.all.get_mut(at) {
            *killed = process;
        }
        Ok(())
    }

    /// Their numbers for the system.
    #[must_use]
    pub fn ids(&self) -> Vec<u32> {
        self.all.iter().map(|process| process.child.id()).collect()
    }

    /// From now on it counts.
    pub fn measure(&mut self) -> Result<()> {
        self.all.iter_mut().try_for_each(|process| process.tell("measure"))
    }

    /// Ends all of them; what they did.
    pub fn end(mut self) -> Result<Done> {
        for process in &mut self.all {
            // One that has failed does not hear it, and says why.
            let _gone = process.tell("end");
        }
        let mut done = Done::default();
        for process in &mut self.all {
            let said = process.hear()?;
            let unclear = || Error::Run(format!("a process said {said}"));
            done.add(&Done::from_json(&said).ok_or_else(unclear)?);
            process.child.wait().map_err(Error::system("wait for a process of the run"))?;
        }
        Ok(done)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end();
    }
}

impl Process {
    /// Kills it; nothing happens to one that has ended.
    fn end(&mut self) {
        let _ended = self.child.kill();
        let _ended = self.child.wait();
    }

    fn start(program: &Program, task: Task) -> Result<Self> {
        let what = || format!("start {}", program.path.display());
        let mut child = Command::new(&program.path)
            .args(&program.arguments)
            .arg(task.to_json())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(Error::system(what()))?;
        match (child.stdin.take(), child.stdout.take()) {
            (Some(tells), Some(says)) => {
                Ok(Self { task, child, tells, says: BufReader::new(says).lines() })
            }
            _ => Err(Error::Run(format!("cannot {}: it has no pipes", what()))),
        }
    }

    fn tell(&mut self, word: &str) -> Result<()> {
        writeln!(self.tells, "{word}").map_err(Error::system("tell a process of the run"))
    }

    /// Its next line, unless that says that it failed.
    fn hear(&mut self) -> Result<Value> {
        let line = self.says.next().and_then(io::Result::ok);
        let value = line.and_then(|line| serde_json::from_str::<Value>(&line).ok());
        match value {
            None => Err(Error::Run("a process of the run ended without a word".to_owned())),
            Some(value) => match value.get("failed").and_then(Value::as_str) {
                Some(why) => Err(Error::Run(why.to_owned())),
                None => Ok(value),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Plan {
        let task = Task {
            mode: Mode::Wal,
            folder: "/a b".into(),
            first: 3,
            workers: 2,
            readers: 5,
            warehouses: 1,
            is_small: true,
            cache_mib: 7,
            seed: u64::MAX,
        };
        assert_eq!(Task::from_json(&task.to_json()), Some(task.clone()));
        let arguments = ["-c", script].map(str::to_owned).to_vec();
        let program = Program { path: "/bin/sh".into(), arguments };
        Plan { processes: 2, reader_processes: 1, program: Some(program), ..task.plan() }
    }

    fn start(plan: &Plan) -> Result<Processes> {
        let place = Place { mode: Mode::Wal, folder: "/x".into(), cache_mib: 1 };
        Processes::start(plan, &place)
    }

    #[test]
    fn processes_hear_the_phases_and_are_added_up() {
        let done = Done { syncs: 7, ..Done::default() };
        let script = format!(
            "echo '{{\"ready\":true}}'; read a; read b; test $a$b = measureend && echo '{}'",
            done.to_json()
        );
        let mut processes = start(&shell(&script)).unwrap();
        assert_eq!(processes.ids().len(), 3);
        processes.measure().unwrap();
        processes.replace(1).unwrap();
        assert_eq!(processes.end().unwrap().syncs, 21);
    }

    #[test]
    fn one_that_fails_says_why() {
        let failed = start(&shell("echo '{\"failed\":\"no room\"}'")).unwrap_err();
        assert_eq!(failed.to_string(), "no room");
        let silent = start(&shell("true")).unwrap_err();
        assert!(silent.to_string().contains("without a word"), "{silent}");
        let later = start(&shell("echo '{\"ready\":true}'; read a; echo '{\"failed\":\"no\"}'"));
        assert_eq!(later.unwrap().end().unwrap_err().to_string(), "no");
        let none = Plan { program: None, ..shell("") };
        assert!(start(&none).is_err());
    }
}
