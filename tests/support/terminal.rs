//! A real terminal: a command on a pseudo-terminal of some size, and the screen that a person sees.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::num::NonZeroU16;
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};

use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use super::GUARD;

/// So many that nothing scrolls away.
const ROWS: u16 = 400;

/// A command at a terminal. Killed when dropped.
pub(crate) struct Terminal {
    child: Child,
    keys: File,
    shown: Receiver<Vec<u8>>,
    screen: vt100::Parser,
    /// Everything that was sent to the screen.
    pub(crate) text: String,
}

/// What a screen shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Screen {
    /// Without the spaces at their ends.
    pub(crate) lines: Vec<String>,
    /// The lines that go on below because they were wider than the screen, up to there.
    pub(crate) wrapped: Vec<String>,
}

impl Screen {
    pub(crate) fn text(&self) -> String {
        self.lines.join("\n") + "\n"
    }
}

fn size(columns: u16) -> Winsize {
    Winsize {
        ws_row: ROWS,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    }
}

impl Terminal {
    /// Starts a command on a terminal that is so wide.
    pub(crate) fn of(command: Command, columns: u16) -> Self {
        Self::with(command, columns, None)
    }

    /// The same, with its standard output elsewhere.
    pub(crate) fn beside(command: Command, columns: u16, out: Stdio) -> Self {
        Self::with(command, columns, Some(out))
    }

    fn with(mut command: Command, columns: u16, out: Option<Stdio>) -> Self {
        let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&ours).unwrap();
        unlockpt(&ours).unwrap();
        let name = ptsname(&ours, Vec::new()).unwrap();
        let theirs = rustix::fs::open(name, OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).unwrap();
        tcsetwinsize(&theirs, size(columns)).unwrap();
        let end = |end: &OwnedFd| Stdio::from(end.try_clone().unwrap());
        command
            .env("TERM", "xterm")
            .stdin(end(&theirs))
            .stdout(out.unwrap_or_else(|| end(&theirs)))
            .stderr(end(&theirs));
        let child = command.spawn().unwrap();
        // What it reads ends when nobody has the other end any more.
        drop((command, theirs));
        let keys = File::from(ours);
        let mut output = keys.try_clone().unwrap();
        let (sender, shown) = channel();
        std::thread::spawn(move || {
            let mut some = [0; 4096];
            while let Ok(count @ 1..) = output.read(&mut some) {
                let _ = sender.send(some[..count].to_vec());
            }
        });
        let wide = |columns: u16| NonZeroU16::new(columns).unwrap();
        Self {
            child,
            keys,
            shown,
            screen: vt100::Parser::new(wide(ROWS), wide(columns), 0),
            text: String::new(),
        }
    }

    /// Gives it another width, and waits until the screen is as wanted and something was drawn
    /// after that. What was drawn for a wider screen before is shown on that one.
    #[track_caller]
    pub(crate) fn resized(&mut self, columns: u16, wanted: impl Fn(&Screen) -> bool) -> Screen {
        tcsetwinsize(&self.keys, size(columns)).unwrap();
        let wide = |columns: u16| NonZeroU16::new(columns).unwrap();
        let (_, before) = self.screen.screen().size();
        let both = before.max(wide(columns));
        self.screen.screen_mut().set_size(wide(ROWS), both);
        self.shows(&wanted);
        self.screen.screen_mut().set_size(wide(ROWS), wide(columns));
        let more = self.shown.recv_timeout(GUARD);
        self.take(&more.expect("nothing more is drawn"));
        self.shows(wanted)
    }

    fn take(&mut self, more: &[u8]) {
        self.text.push_str(&String::from_utf8_lossy(more));
        self.screen.process(more);
    }

    /// Waits until something was sent so many times.
    #[track_caller]
    pub(crate) fn until(&mut self, words: &str, times: usize) {
        while self.text.matches(words).count() < times {
            match self.shown.recv_timeout(GUARD) {
                Ok(more) => self.take(&more),
                Err(_) => panic!("{words:?} not {times} times in\n{}", self.text),
            }
        }
    }

    /// Waits until the screen is as wanted.
    #[track_caller]
    pub(crate) fn shows(&mut self, wanted: impl Fn(&Screen) -> bool) -> Screen {
        loop {
            let screen = self.screen();
            if wanted(&screen) {
                return screen;
            }
            match self.shown.recv_timeout(GUARD) {
                Ok(more) => self.take(&more),
                Err(_) => panic!("not as wanted:\n{}", screen.text()),
            }
        }
    }

    pub(crate) fn screen(&self) -> Screen {
        let screen = self.screen.screen();
        let (_, columns) = screen.size();
        let mut lines: Vec<String> = screen.rows(0, columns.get()).collect();
        let wraps = |row: usize| screen.row_wrapped(u16::try_from(row).unwrap());
        let begins = |row: usize| wraps(row) && (row == 0 || !wraps(row - 1));
        let wrapped = lines.iter().enumerate().filter(|(row, _)| begins(*row));
        let wrapped = wrapped.map(|(_, line)| line.clone()).collect();
        for line in &mut lines {
            line.truncate(line.trim_end().len());
        }
        while lines.last().is_some_and(String::is_empty) {
            lines.pop();
        }
        Screen { lines, wrapped }
    }

    /// The process.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn types(&mut self, line: &str) {
        writeln!(self.keys, "{line}").unwrap();
    }

    /// Waits for the end: exit code, and what the screen shows then.
    #[track_caller]
    pub(crate) fn ends(&mut self) -> (i32, Screen) {
        loop {
            match self.shown.recv_timeout(GUARD) {
                Ok(more) => self.take(&more),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => panic!("it does not end:\n{}", self.text),
            }
        }
        let status = self.child.wait().unwrap();
        (status.code().unwrap_or(-1), self.screen())
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
