//! Hostile programs: each ends by a limit or by itself, changes nothing outside of its copy, and leaves
//! nothing that runs.

#![allow(clippy::unwrap_used)]

mod serving;

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use tempfile::TempDir;

use crate::left_behind;
use crate::{
    Execution, FolderError, Interrupt, Limit, PrivateFolder, Program, ProgramEnd, Sandbox,
    SandboxError, SandboxLimits,
};

/// Small limits, so that hostile programs meet them soon.
fn limits() -> SandboxLimits {
    SandboxLimits {
        time: Duration::from_secs(20),
        memory: 256 << 20,
        processes: 40,
        disk: 8 << 20,
        files: 200_000,
        output: 4 << 10,
    }
}

/// The sandbox; where there is none, its test says so and ends.
fn sandbox() -> Option<Sandbox> {
    match Sandbox::find() {
        Ok(sandbox) => Some(sandbox),
        Err(error) => {
            // Past the capture of tests: in the log of a run that passes, too.
            use std::io::Write as _;
            let _ = writeln!(std::io::stderr(), "\nNOT TESTED: the sandbox: {error}");
            None
        }
    }
}

/// A folder with a file, a program to be run beside a copy of it, and the sandbox.
struct Bench {
    original: TempDir,
    folder: PrivateFolder,
    sandbox: Sandbox,
}

impl Bench {
    fn new() -> Option<Self> {
        let sandbox = sandbox()?;
        let original = tempfile::tempdir().unwrap();
        fs::write(original.path().join("a.txt"), "first").unwrap();
        let folder = sandbox.copy_of(original.path()).unwrap();
        Some(Self {
            original,
            folder,
            sandbox,
        })
    }

    fn sh(&self, script: &str, limits: SandboxLimits) -> Execution {
        let arguments = ["sh", "-c", script];
        let program = Program::new(&arguments, limits);
        self.sandbox.run(&self.folder, &program).unwrap()
    }
}

fn printed(ran: &Execution) -> String {
    String::from_utf8_lossy(&ran.output.kept).into_owned()
}

fn exited(ran: &Execution) -> i32 {
    match ran.end() {
        ProgramEnd::Exited(code) => code,
        ProgramEnd::Stopped(_) => panic!("{:?}: {}", ran.end(), printed(ran)),
    }
}

/// Whether a process with this word among its arguments is left on the machine.
fn is_left(word: &str) -> bool {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let mut lines = processes.filter_map(|one| fs::read(one.path().join("cmdline")).ok());
    lines.any(|line| String::from_utf8_lossy(&line).contains(word))
}

#[test]
fn a_program_has_its_workspace_its_exit_code_and_its_output() {
    let Some(bench) = Bench::new() else { return };
    let ran = bench.sh("cat a.txt; echo more >&2; exit 7", limits());
    assert_eq!(exited(&ran), 7);
    assert_eq!(printed(&ran), "firstmore\n");
    // A program that is ended by a signal, and one that is not there.
    assert_eq!(exited(&bench.sh("kill -9 $$", limits())), 137);
    assert_eq!(exited(&bench.sh("no-such-program", limits())), 127);
}

#[test]
fn programs_share_a_copy_and_the_original_stays_as_it_is() {
    let Some(bench) = Bench::new() else { return };
    assert_eq!(
        exited(&bench.sh("echo second > b.txt; rm a.txt", limits())),
        0
    );
    assert_eq!(
        printed(&bench.sh("cat b.txt; ls", limits())),
        "second\nb.txt\n"
    );
    assert_eq!(
        exited(&bench.sh("rm -rf /work/* /work/.*; ls -A /work | wc -l", limits())),
        0
    );
    let left: Vec<_> = fs::read_dir(bench.original.path()).unwrap().collect();
    assert_eq!(left.len(), 1);
    let arguments = ["sh", "-c", "echo x > /work/c.txt"];
    let program = Program::new(&arguments, limits()).read_only();
    let ran = bench.sandbox.run(&bench.folder, &program).unwrap();
    assert_ne!(exited(&ran), 0, "{:?}", ran.end());
}

#[test]
fn a_program_sees_nothing_of_the_machine_but_its_programs() {
    let Some(bench) = Bench::new() else { return };
    let secret = tempfile::tempdir().unwrap();
    fs::write(secret.path().join("ledger.db"), "secret").unwrap();
    let home = std::env::var("HOME").unwrap_or_else(|_| "/root".to_owned());
    let outside = secret.path().display();
    let script = format!(
        "cat {outside}/ledger.db /etc/shadow /etc/hostname; ls {home} /root /home /var /run /sys; env"
    );
    let ran = bench.sh(&script, limits());
    let words = printed(&ran);
    assert!(!words.contains("secret"), "{words}");
    assert_eq!(words.matches("No such file").count(), 3 + 6, "{words}");
    let names = words.lines().filter_map(|line| line.split_once('='));
    let mut names: Vec<&str> = names.map(|(name, _)| name).collect();
    names.sort_unstable();
    assert_eq!(names, ["HOME", "LANG", "PATH", "PWD", "USER"], "{words}");
    let rights = bench.sh(
        "for at in / /dev /usr /etc /check; do echo x > $at/x; done 2>/dev/null; \
         ls /x /dev/x /usr/x /etc/x /check/x 2>/dev/null; id -u; grep -h Cap /proc/self/status; \
         ls /proc/self/fd | wc -l; unshare -r true && echo nested; mount -t tmpfs x /tmp && echo mounted",
        limits(),
    );
    let words = printed(&rights);
    let caps: Vec<&str> = words
        .lines()
        .filter(|line| line.starts_with("Cap"))
        .collect();
    assert_eq!(caps.len(), 5, "{words}");
    assert!(
        caps.iter().all(|line| line.ends_with("\t0000000000000000")),
        "{words}"
    );
    assert!(words.starts_with("1000\n"), "{words}");
    // The three of every program, and the one that the folder is listed by.
    assert!(words.contains("\n4\n"), "{words}");
    assert!(
        !words.contains("nested") && !words.contains("mounted"),
        "{words}"
    );
}

#[test]
fn a_program_reaches_no_network_not_even_a_listener_of_this_machine() {
    let Some(bench) = Bench::new() else { return };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let port = listener.local_addr().unwrap().port();
    let script = format!(
        "bash -c 'exec 3<>/dev/tcp/127.0.0.1/{port}' && echo reached; \
         cat /proc/net/dev | tail -n +3 | cut -d: -f1"
    );
    let ran = bench.sh(&script, limits());
    let words = printed(&ran);
    assert!(!words.contains("reached"), "{words}");
    assert_eq!(words.trim().lines().last().unwrap().trim(), "lo", "{words}");
    assert!(listener.accept().is_err());
}

#[test]
fn a_program_that_hangs_ends_with_all_that_it_has_started() {
    let Some(bench) = Bench::new() else { return };
    let soon = SandboxLimits {
        time: Duration::from_millis(300),
        ..limits()
    };
    let script = "setsid sleep 86399.1 & nohup sleep 86399.1 >/dev/null 2>&1 & trap '' TERM; \
                  echo begun; while :; do sleep 86399.1; done";
    let ran = bench.sh(script, soon);
    assert_eq!(ran.end(), ProgramEnd::Stopped(Limit::Time(soon.time)));
    assert_eq!(printed(&ran), "begun\n");
    assert!(!is_left("86399.1"));
}

#[test]
fn daemons_end_with_the_program_that_left_them() {
    let Some(bench) = Bench::new() else { return };
    let script = "for i in 1 2 3 4 5 6 7 8 9 10; do setsid sleep 86399.2 & \
                  (setsid nohup sleep 86399.2 >/dev/null 2>&1 &); done; exit 3";
    for _ in 0..5 {
        assert_eq!(exited(&bench.sh(script, limits())), 3);
        assert!(!is_left("86399.2"));
    }
}

#[test]
fn processes_without_end_meet_their_limit() {
    let Some(bench) = Bench::new() else { return };
    let soon = SandboxLimits {
        time: Duration::from_secs(5),
        ..limits()
    };
    let met = ProgramEnd::Stopped(Limit::Processes(40));
    let many = "sh -c 'while :; do sleep 86399.3 & done'; exec sleep 86399.3";
    assert_eq!(bench.sh(many, soon).end(), met);
    assert!(!is_left("86399.3"));
    // This one grows faster than it is seen, and may come to its end by itself.
    let bomb = bench.sh("f() { f | f & }; f; sleep 1", soon).end();
    assert!(bomb == met || bomb == ProgramEnd::Exited(0) || bomb == ProgramEnd::Exited(2));
    // Fewer are no matter.
    let few = "for i in 1 2 3 4 5 6 7 8 9 10; do sleep 0 & done; wait";
    assert_eq!(exited(&bench.sh(few, limits())), 0);
}

#[test]
fn a_program_that_fills_the_disk_meets_its_limit() {
    let Some(bench) = Bench::new() else { return };
    let disk = ProgramEnd::Stopped(Limit::Disk(8 << 20));
    assert_eq!(bench.sh("exec cat /dev/zero > large", limits()).end(), disk);
    let many = "i=0; while :; do i=$((i+1)); head -c 1000000 /dev/zero > f$i; done";
    assert_eq!(bench.sh(many, limits()).end(), disk);
    // Holes take no place, but the time to read them.
    let holes = "for i in 1 2 3; do truncate -s 3M s$i; done; sleep 86399.9";
    assert_eq!(exited(&bench.sh("rm -f *", limits())), 0);
    assert_eq!(bench.sh(holes, limits()).end(), disk);
    // What has no name any more is written all the same.
    let hidden = "while :; do head -c 4000000 /dev/zero > f; exec 5>>f; rm -f f; done";
    let ran = bench.sh(&format!("rm -f *; {hidden}"), limits());
    let on_a_disk = std::env::temp_dir();
    let on_a_disk = !fs::read_to_string("/proc/mounts")
        .unwrap()
        .contains(&format!("tmpfs {} ", on_a_disk.display()));
    if on_a_disk {
        assert_eq!(ran.end(), disk);
    }
    let tmp = "head -c 4G /dev/zero > /dev/shm/a; head -c 4G /dev/zero > /tmp/a";
    assert!(matches!(
        bench.sh(tmp, limits()).end(),
        ProgramEnd::Exited(_) | ProgramEnd::Stopped(Limit::Disk(_))
    ));
}

#[test]
fn an_exit_code_is_not_taken_for_the_signal_of_a_file_that_is_too_large() {
    let Some(bench) = Bench::new() else { return };
    assert_eq!(exited(&bench.sh("exit 153", limits())), 153);
    let small = "head -c 1M /dev/zero > small; exit 153";
    assert_eq!(exited(&bench.sh(small, limits())), 153);
    let disk = ProgramEnd::Stopped(Limit::Disk(8 << 20));
    let large = "exec dd if=/dev/zero of=large bs=1M count=9 2>/dev/null";
    assert_eq!(bench.sh(large, limits()).end(), disk);
}

#[test]
fn files_that_a_program_adds_are_counted_and_not_those_that_were_there() {
    let Some(bench) = Bench::new() else { return };
    for at in 0..200 {
        fs::write(bench.folder.workspace().join(format!("f{at}")), "").unwrap();
    }
    let few = SandboxLimits {
        files: 100,
        ..limits()
    };
    let adds = |name: &str, count: u32, sleep: &str| {
        let script =
            format!("i=0; while [ $i -lt {count} ]; do i=$((i+1)); : > {name}$i; done; {sleep}");
        bench.sh(&script, few)
    };
    assert_eq!(exited(&adds("a", 90, "sleep 0.1")), 0);
    // Those of the program before were there, too.
    assert_eq!(exited(&adds("b", 90, "sleep 0.1")), 0);
    let met = ProgramEnd::Stopped(Limit::Files(100));
    assert_eq!(adds("c", 101, "sleep 86399.8").end(), met);
    // So were folders that are too deep.
    let deep = format!("{}/{}", "d".repeat(200), "d".repeat(200));
    let script =
        format!("for i in 1 2 3 4 5 6 7 8 9; do mkdir -p {deep} && cd {deep}; done; sleep 86399.8");
    assert_eq!(bench.sh(&script, few).end(), met);
    assert_eq!(exited(&bench.sh("sleep 0.1", few)), 0);
}

#[test]
fn memory_has_a_limit_for_one_process_and_for_all() {
    let Some(bench) = Bench::new() else { return };
    let one = "head -c 400M /dev/zero | tail -c 400M > /dev/null";
    assert_ne!(bench.sh(one, limits()).end(), ProgramEnd::Exited(0));
    // Each keeps what it has read, as long as what it writes is not read.
    let each = "head -c 100M /dev/zero | tail -c 100M | sleep 86399.6";
    let all = format!("for i in 1 2 3 4 5; do {each} & done; wait");
    let met = ProgramEnd::Stopped(Limit::Memory(256 << 20));
    assert_eq!(bench.sh(&all, limits()).end(), met);
    assert!(!is_left("86399.6"));
}

#[test]
fn of_much_output_the_end_is_kept() {
    let Some(bench) = Bench::new() else { return };
    let ran = bench.sh("head -c 300000000 /dev/zero; echo end", limits());
    assert_eq!(exited(&ran), 0);
    assert_eq!(ran.output.total, 300_000_004);
    assert_eq!(ran.output.kept.len(), 4 << 10);
    assert!(printed(&ran).ends_with("\0end\n"));
}

#[test]
fn a_program_cannot_leave_a_folder_that_is_not_removed() {
    let Some(bench) = Bench::new() else { return };
    let script = "mkdir -p closed/within && echo x > closed/within/a && chmod 000 closed/within closed; \
                  i=0; while [ $i -lt 1500 ]; do mkdir deeper-and-deeper && cd deeper-and-deeper || break; \
                  i=$((i+1)); done; echo $i";
    let ran = bench.sh(script, limits());
    let root = bench.folder.root().to_path_buf();
    assert!(root.exists());
    drop(bench.folder);
    assert!(!root.exists(), "{:?}", ran.end());
}

#[test]
fn no_other_user_can_enter_a_private_folder() {
    let folder = Sandbox::none().empty_folder().unwrap();
    let mode = folder.root().metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
}

#[test]
fn a_workspace_lends_no_rights_of_its_owner() {
    let Some(bench) = Bench::new() else { return };
    let ran = bench.sh("grep ' /work ' /proc/self/mountinfo", limits());
    assert!(printed(&ran).contains("nosuid"), "{}", printed(&ran));
}

#[test]
fn links_are_copied_as_links_and_lead_nowhere() {
    let Some(sandbox) = sandbox() else { return };
    let original = tempfile::tempdir().unwrap();
    let outside = tempfile::tempdir().unwrap();
    let target = outside.path().join("kept.txt");
    fs::write(&target, "kept").unwrap();
    fs::set_permissions(&target, fs::Permissions::from_mode(0o666)).unwrap();
    symlink(&target, original.path().join("link")).unwrap();
    symlink("/", original.path().join("root")).unwrap();
    fs::create_dir(original.path().join("sub")).unwrap();
    symlink("../a.txt", original.path().join("sub/within")).unwrap();
    fs::write(original.path().join("a.txt"), "within").unwrap();
    rustix_fifo(&original.path().join("pipe"));
    let folder = sandbox.copy_of(original.path()).unwrap();
    let link = folder.workspace().join("link");
    assert_eq!(fs::read_link(link).unwrap(), target);
    let arguments = [
        "sh",
        "-c",
        "echo changed > link; cat link; cat sub/within; ls root/home; ls; ln -s /etc/shadow new",
    ];
    let ran = sandbox.run(&folder, &Program::new(&arguments, limits()));
    let words = printed(&ran.unwrap());
    assert_eq!(fs::read_to_string(&target).unwrap(), "kept");
    assert!(
        words.contains("within") && !words.contains("kept"),
        "{words}"
    );
    assert!(!words.contains("pipe"), "{words}");
    assert!(
        folder
            .workspace()
            .join("new")
            .symlink_metadata()
            .unwrap()
            .is_symlink()
    );
}

/// A pipe with a name.
fn rustix_fifo(path: &Path) {
    let made = std::process::Command::new("mkfifo").arg(path).status();
    assert!(made.unwrap().success());
}

#[test]
fn without_a_sandbox_a_program_has_its_limits_and_its_group_ends_with_it() {
    let none = Sandbox::none();
    let folder = none.empty_folder().unwrap();
    let run = |script: &str, limits: SandboxLimits| {
        let arguments = ["sh", "-c", script];
        none.run(&folder, &Program::new(&arguments, limits))
            .unwrap()
    };
    assert_eq!(exited(&run("sleep 86399.4 & pwd; exit 5", limits())), 5);
    assert!(!is_left("86399.4"));
    let soon = SandboxLimits {
        time: Duration::from_millis(100),
        ..limits()
    };
    let ran = run("sleep 86399.5", soon);
    assert_eq!(ran.end(), ProgramEnd::Stopped(Limit::Time(soon.time)));
    assert!(!is_left("86399.5"));
}

#[test]
fn what_is_missing_is_an_error_and_not_a_program_that_failed() {
    let none = Sandbox::none();
    let folder = none.empty_folder().unwrap();
    let program = Program::new(&["/no/such/program"], limits());
    assert!(matches!(
        none.run(&folder, &program),
        Err(SandboxError::Start(_))
    ));
}

#[test]
fn an_interrupt_ends_a_program_with_all_that_it_has_started_and_begins_no_other() {
    let Some(sandbox) = sandbox() else { return };
    for sandbox in [sandbox, Sandbox::none()] {
        let interrupt = Interrupt::default();
        let sandbox = sandbox.ended_by(interrupt.clone());
        let folder = sandbox.empty_folder().unwrap();
        let begun = folder.workspace().join("begun");
        let script = "sleep 86399.7 & touch begun; sleep 86399.7";
        let arguments = ["sh", "-c", script];
        let program = Program::new(&arguments, limits());
        let ran = std::thread::scope(|scope| {
            let running = scope.spawn(|| sandbox.run(&folder, &program));
            while !begun.exists() && !running.is_finished() {
                std::thread::yield_now();
            }
            interrupt.set();
            running.join().unwrap()
        });
        assert!(matches!(ran, Err(SandboxError::Interrupted)), "{ran:?}");
        assert!(!is_left("86399.7"));
        let again = sandbox.run(&folder, &Program::new(&["true"], limits()));
        assert!(matches!(again, Err(SandboxError::Interrupted)), "{again:?}");
        let original = tempfile::tempdir().unwrap();
        fs::write(original.path().join("a.txt"), "first").unwrap();
        assert!(sandbox.copy_of(original.path()).is_err());
    }
}

#[test]
fn folders_that_killed_processes_have_left_are_removed_and_nothing_else() {
    let temporary = tempfile::tempdir().unwrap();
    let at = |name: &str| temporary.path().join(name);
    let make = |name: &str| {
        fs::create_dir_all(at(name).join("work/a/b")).unwrap();
        fs::write(at(name).join("work/a/b.txt"), "x").unwrap();
        at(name).join("lock")
    };
    fs::write(make("ktsu-check-left"), "").unwrap();
    // A removal that was interrupted.
    fs::create_dir_all(at("ktsu-check-left/removed-1/x/y")).unwrap();
    fs::create_dir_all(at("ktsu-check-left/removed-2/x")).unwrap();
    fs::write(make("elsewhere"), "").unwrap();
    symlink(at("elsewhere"), at("ktsu-check-left/work/link")).unwrap();
    symlink(at("elsewhere"), at("ktsu-check-link")).unwrap();
    symlink(at("elsewhere/lock"), make("ktsu-check-lock-link")).unwrap();
    make("ktsu-check-no-lock");
    // Their processes were killed before they had a lock; that of the last one is at work.
    for name in ["empty", "begun", "beginning"] {
        fs::create_dir(at(&format!("ktsu-check-{name}"))).unwrap();
    }
    fs::write(at("ktsu-check-begun/lock-new"), "").unwrap();
    let beginning = fs::File::open(at("ktsu-check-beginning")).unwrap();
    beginning.lock().unwrap();
    let used = fs::File::create(make("ktsu-check-used")).unwrap();
    used.lock().unwrap();
    left_behind::remove(temporary.path());
    for name in ["left", "empty", "begun"] {
        assert!(!at(&format!("ktsu-check-{name}")).exists(), "{name}");
    }
    assert!(at("ktsu-check-beginning").exists());
    let kept = [
        "elsewhere",
        "ktsu-check-lock-link",
        "ktsu-check-no-lock",
        "ktsu-check-used",
    ];
    for name in kept {
        assert!(at(name).join("work/a/b.txt").exists(), "{name}");
    }
    assert!(at("ktsu-check-link").is_symlink());
    // Closing it is not enough: a program that another test is about to start may have it, too.
    used.unlock().unwrap();
    left_behind::remove(temporary.path());
    assert!(!at("ktsu-check-used").exists());
    // One that is in use by this process is its own proof.
    let folder = Sandbox::none().empty_folder().unwrap();
    left_behind::remove(&std::env::temp_dir());
    assert!(folder.workspace().exists());
}

#[test]
fn a_folder_is_whole_though_others_remove_what_is_left() {
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                left_behind::remove(&std::env::temp_dir());
            }
        });
        let made = (0..200).map(|_| {
            let folder = PrivateFolder::new(None)?;
            Ok(folder.workspace().exists())
        });
        let made: Result<Vec<bool>, FolderError> = made.collect();
        done.store(true, Ordering::Relaxed);
        assert!(made.is_ok_and(|all| all.iter().all(|is_there| *is_there)));
    });
}

#[test]
fn a_program_sees_a_copy_of_the_folder_that_it_is_shown_and_cannot_change_it() {
    let Some(bench) = Bench::new() else { return };
    let shown = bench.sandbox.copy_of(bench.original.path()).unwrap();
    let place = bench.sandbox.place_of_shown(&shown).display().to_string();
    let script = format!("cat {place}/a.txt && ! echo x > {place}/a.txt");
    let arguments = ["sh", "-c", &script];
    let program = Program::new(&arguments, limits()).shows(&shown);
    let ran = bench.sandbox.run(&bench.folder, &program).unwrap();
    assert_eq!(exited(&ran), 0, "{}", printed(&ran));
    let kept = fs::read_to_string(shown.workspace().join("a.txt")).unwrap();
    assert_eq!(kept, "first");
}
