//! Running the binary on a terminal of its own.

use std::fs::File;
use std::io::Read;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags, open};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcgetattr, tcsetwinsize};
use tempfile::TempDir;

use crate::support::Running;

const PATIENCE: Duration = Duration::from_secs(60);

/// A terminal, and the command on it.
pub struct Terminal {
    pub keyboard: File,
    /// Kept open, so that its modes can be asked for after the command has ended.
    device: File,
    modes: String,
    shown: Arc<Mutex<Vec<u8>>>,
    child: Running,
    _folder: TempDir,
}

impl Terminal {
    pub fn run(arguments: &[&str], term: &str, (columns, rows): (u16, u16)) -> Self {
        let host = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&host).unwrap();
        unlockpt(&host).unwrap();
        let name = ptsname(&host, Vec::new()).unwrap();
        let device = File::from(open(name, OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).unwrap());
        let size = Winsize { ws_col: columns, ws_row: rows, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&device, size).unwrap();
        let modes = format!("{:?}", tcgetattr(&device).unwrap());
        // In a session of its own, so that the terminal that the tests run on is not asked.
        let mut command = Command::new("setsid");
        command.arg(env!("CARGO_BIN_EXE_esker")).args(arguments).env("TERM", term);
        let folder = tempfile::tempdir().unwrap();
        command.env("TMPDIR", folder.path());
        let end = || Stdio::from(device.try_clone().unwrap());
        let child = Running(command.stdin(end()).stdout(end()).stderr(end()).spawn().unwrap());
        let keyboard = File::from(host);
        let shown = Arc::default();
        let (mut screen, seen) = (keyboard.try_clone().unwrap(), Arc::clone(&shown));
        thread::spawn(move || copy(&mut screen, &seen));
        Self { keyboard, device, modes, shown, child, _folder: folder }
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.shown.lock().unwrap()).into_owned()
    }

    #[track_caller]
    pub fn wait_for(&self, word: &str) {
        let begun = Instant::now();
        while !self.text().contains(word) {
            assert!(begun.elapsed() < PATIENCE, "{word:?} never came:\n{}", self.text());
            thread::sleep(Duration::from_millis(10));
        }
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child.0), signal).unwrap();
    }

    /// Waits for its end, and for `last` to be shown.
    #[track_caller]
    pub fn end(mut self, last: &str) -> (ExitStatus, String) {
        let begun = Instant::now();
        let status = loop {
            if let Some(status) = self.child.0.try_wait().unwrap() {
                break status;
            }
            assert!(begun.elapsed() < PATIENCE, "it does not end:\n{}", self.text());
            thread::sleep(Duration::from_millis(10));
        };
        self.wait_for(last);
        assert_eq!(format!("{:?}", tcgetattr(&self.device).unwrap()), self.modes);
        (status, self.text())
    }
}

/// Until no process holds the terminal any more, which is an error here and not an end.
fn copy(screen: &mut File, seen: &Mutex<Vec<u8>>) {
    let mut part = [0; 4096];
    while let Ok(count @ 1..) = screen.read(&mut part) {
        seen.lock().unwrap().extend_from_slice(&part[..count]);
    }
}
