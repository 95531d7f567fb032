//! Starting the process of a run, listening to it, and killing it where that is the point.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use esker_lab_measure::background::{Stop, StopOnDrop};
use esker_lab_measure::process::DeviceBytes;
use esker_lab_result::Metrics;
use esker_peers::Name;

use crate::stores::bench::{Program, Watch};
use crate::stores::task::{Message, Task};
use crate::{Error, Result};

/// Between two looks at how much a process has written.
const LOOK_INTERVAL: Duration = Duration::from_millis(2);
/// A process that has not written what was expected after this long never will.
const LOOK_MAX: Duration = Duration::from_secs(600);

/// Runs a task to its end.
pub(super) fn run(program: &Program, task: &Task, watch: &mut dyn Watch) -> Result<Metrics> {
    let mut child = start(program, task)?;
    let said = listen(&mut child, watch, |_| ());
    end(child, task, said)
}

/// Runs a task until it has said that it is ready and then written `bytes` more, and kills it.
pub(super) fn run_and_kill(
    program: &Program,
    task: &Task,
    bytes: u64,
    watch: &mut dyn Watch,
) -> Result<()> {
    let mut child = start(program, task)?;
    let pid = rustix::process::Pid::from_child(&child);
    let stop = Stop::default();
    let said = thread::scope(|scope| {
        let _stop = StopOnDrop(&stop);
        listen(&mut child, watch, |message| {
            if *message == Message::Ready {
                scope.spawn(|| kill_after(pid, bytes, &stop));
            }
        })
    });
    match end(child, task, said) {
        // It was killed, and had no time to say anything.
        Err(Error::Child { .. }) => Ok(()),
        Err(error) => Err(error),
        Ok(_) => Err(failed(task, "it was not killed in time")),
    }
}

/// Kills the process when it has written enough. It is not waited for before this ends, so that
/// its number cannot have become another's.
fn kill_after(pid: rustix::process::Pid, bytes: u64, stop: &Stop) {
    let written = || DeviceBytes::of(&pid.to_string()).map_or(0, |bytes| bytes.written);
    let (start, before) = (Instant::now(), written());
    while written().saturating_sub(before) < bytes && start.elapsed() < LOOK_MAX {
        if stop.wait(LOOK_INTERVAL) {
            return;
        }
    }
    // If it has just ended by itself, the thread that waits for it will notice.
    let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
}

/// The allocator of the GNU library keeps memory apart for each thread: what one thread's part has
/// free, another's cannot use. Esker's notes advise its embedders to bound the number of parts,
/// and it is measured that way; peers run as they come.
const ARENAS: (&str, &str) = ("MALLOC_ARENA_MAX", "1");

fn start(program: &Program, task: &Task) -> Result<Child> {
    let arenas = (task.system == Name::Esker).then_some(ARENAS);
    Command::new(&program.path)
        .args(&program.arguments)
        .envs(arenas)
        .arg(task.to_json())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(Error::system(format!("start {}", program.path.display())))
}

/// Reads what the process says until it says no more; answers the last thing said.
fn listen(
    child: &mut Child,
    watch: &mut dyn Watch,
    mut hears: impl FnMut(&Message),
) -> Option<Message> {
    let lines = BufReader::new(child.stdout.take()?).lines();
    let mut last = None;
    for message in lines.map_while(std::io::Result::ok).filter_map(|l| Message::from_json(&l)) {
        if let Message::Progress { done, total } = message {
            watch.progress(done, total);
        }
        hears(&message);
        last = Some(message);
    }
    last
}

fn end(mut child: Child, task: &Task, said: Option<Message>) -> Result<Metrics> {
    let status = child.wait().map_err(Error::system("wait for a run"))?;
    match said {
        Some(Message::Metrics(metrics)) if status.success() => Ok(metrics),
        Some(Message::Failed(why)) => Err(Error::Run(why)),
        _ => Err(failed(task, &status.to_string())),
    }
}

fn failed(task: &Task, why: &str) -> Error {
    let run = format!("{} of {}", task.row.as_str(), task.system);
    Error::Child { run, why: why.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stores::bench::RunName;
    use crate::stores::rows::Row;
    use crate::stores::sizes::Scale;
    use esker_peers::Name;

    #[derive(Default)]
    struct Heard(Vec<(u64, u64)>);

    impl Watch for Heard {
        fn begins(&mut self, _: RunName) {}
        fn progress(&mut self, done: u64, total: u64) {
            self.0.push((done, total));
        }
        fn ends(&mut self, _: RunName, _: &Result<Metrics>) {}
        fn is_interrupted(&self) -> bool {
            false
        }
    }

    fn shell(script: &str) -> (Result<Metrics>, Vec<(u64, u64)>) {
        let arguments = ["-c", script].map(str::to_owned).to_vec();
        let program = Program { path: "/bin/sh".into(), arguments };
        let mut heard = Heard::default();
        (run(&program, &task(), &mut heard), heard.0)
    }

    fn task() -> Task {
        Task {
            row: Row::Load,
            system: Name::Esker,
            arrangement: esker_peers::Arrangement::default(),
            media: None,
            scale: Scale::Tiny,
            folder: "/x".into(),
            seed: 1,
            rate: 1.0,
            group: None,
            crash: false,
        }
    }

    #[test]
    fn a_run_is_heard_to_its_end() {
        let (metrics, heard) = shell(
            "echo noise; echo '{\"progress\":[1,2]}'; echo '{\"metrics\":{\"a\":3.0}}'; exit 0",
        );
        assert_eq!((metrics.unwrap()["a"], heard), (3.0, vec![(1, 2)]));
    }

    #[test]
    fn a_run_that_fails_says_why() {
        let (result, _) = shell("echo '{\"failed\":\"no room\"}'; exit 1");
        assert_eq!(result.unwrap_err().to_string(), "no room");
        let (result, _) = shell("kill -9 $$");
        let text = result.unwrap_err().to_string();
        assert!(text.starts_with("the run load of esker ended without a result:"), "{text}");
        assert!(text.contains('9'), "{text}");
    }

    #[test]
    fn a_process_is_killed_once_it_has_written_enough() {
        let script = "echo '{\"ready\":true}'; exec sleep 60";
        let arguments = ["-c", script].map(str::to_owned).to_vec();
        let program = Program { path: "/bin/sh".into(), arguments };
        let start = Instant::now();
        run_and_kill(&program, &task(), 0, &mut Heard::default()).unwrap();
        assert!(start.elapsed() < Duration::from_secs(30));

        let arguments = ["-c", "echo '{\"metrics\":{}}'"].map(str::to_owned).to_vec();
        let program = Program { path: "/bin/sh".into(), arguments };
        let text = run_and_kill(&program, &task(), 0, &mut Heard::default()).unwrap_err();
        assert!(text.to_string().contains("not killed in time"), "{text}");
    }
}
