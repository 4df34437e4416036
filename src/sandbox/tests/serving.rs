//! Programs that serve: each ends with all that it has started, and within its limits.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::time::Duration;

use super::{Bench, is_left, limits};
use crate::{Limit, Program, ProgramEnd, Sandbox, SandboxError, SandboxLimits};

#[test]
fn a_program_that_serves_is_asked_through_its_input_and_ends_with_everything_once_it_is_dropped() {
    let Some(bench) = Bench::new() else { return };
    let script =
        "(setsid sleep 86395.5 &) ; while read line; do echo \"$line\"; cat a.txt; echo; done";
    let arguments = ["sh", "-c", script];
    let program = Program::new(&arguments, limits());
    let mut serving = bench.sandbox.serve(&bench.folder, &program).unwrap();
    let mut input = serving.input.take().unwrap();
    let mut output = BufReader::new(serving.output.take().unwrap());
    input.write_all(b"hello\n").unwrap();
    let mut lines = String::new();
    output.read_line(&mut lines).unwrap();
    output.read_line(&mut lines).unwrap();
    assert_eq!(lines, "hello\nfirst\n");
    let ending = serving.ending();
    assert!(ending.wait(Duration::ZERO).is_none() && is_left("86395.5"));
    drop(serving);
    assert!(!is_left("86395.5"));
}

#[test]
fn a_program_that_serves_meets_its_limits_and_says_how_it_ended() {
    let Some(bench) = Bench::new() else { return };
    let limits = SandboxLimits {
        time: Duration::from_millis(300),
        ..limits()
    };
    for (script, end, last) in [
        ("echo broken >&2; exit 7", ProgramEnd::Exited(7), "broken"),
        (
            "sleep 86394.5",
            ProgramEnd::Stopped(Limit::Time(limits.time)),
            "",
        ),
    ] {
        let arguments = ["sh", "-c", script];
        let program = Program::new(&arguments, limits);
        let mut serving = bench.sandbox.serve(&bench.folder, &program).unwrap();
        let mut printed = String::new();
        // Ends with the program.
        let mut output = serving.output.take().unwrap();
        output.read_to_string(&mut printed).unwrap();
        let ended = serving.ending().wait(Duration::from_secs(20));
        assert_eq!(ended, Some((end, last.to_owned())));
    }
    assert!(!is_left("86394.5"));
}

#[test]
fn nothing_writes_to_a_folder_once_a_program_that_serves_in_it_is_dropped() {
    let Some(bench) = Bench::new() else { return };
    let limits = SandboxLimits {
        processes: 400,
        memory: 2 << 30,
        ..limits()
    };
    // None of them ends by itself.
    let script = "i=0; while [ $i -lt 100 ]; do i=$((i+1)); \
                  setsid sh -c 'trap \"\" TERM HUP; exec <&- >&- 2>&-; n=0; \
                  while :; do n=$((n+1)); echo 86393.5 $n > f$0; done' $i & done; \
                  echo begun; read line";
    let arguments = ["sh", "-c", script];
    let program = Program::new(&arguments, limits);
    for _ in 0..5 {
        let mut serving = bench.sandbox.serve(&bench.folder, &program).unwrap();
        let mut output = BufReader::new(serving.output.take().unwrap());
        output.read_line(&mut String::new()).unwrap();
        // It ends by itself, without those that it has started.
        drop(serving.input.take());
        assert!(serving.ending().wait(Duration::from_secs(20)).is_some());
        drop(serving);
        assert!(!is_left("86393.5"));
    }
    assert!(bench.folder.close());
    let refused = bench.sandbox.serve(&bench.folder, &program);
    assert!(matches!(refused, Err(SandboxError::Closed)));
    // What is run to its end is let in.
    let ran = bench.sh("cat f1 > /dev/null", limits);
    assert_eq!(ran.end(), ProgramEnd::Exited(0));
}

#[test]
fn a_folder_in_which_a_program_serves_is_not_closed_before_that_ends() {
    let none = Sandbox::none();
    let folder = none.empty_folder().unwrap();
    let program = Program::new(&["cat"], limits());
    let serving = none.serve(&folder, &program).unwrap();
    assert!(!folder.occupancy.close(Duration::from_millis(1)));
    drop(serving);
    assert!(folder.close());
    let missing = Program::new(&["/no/such/program"], limits());
    let folder = none.empty_folder().unwrap();
    assert!(none.serve(&folder, &missing).is_err());
    assert!(folder.close());
}

#[test]
fn what_programs_that_serve_have_written_counts_for_those_that_are_started_later() {
    let Some(bench) = Bench::new() else { return };
    let script = "head -c 5000000 /dev/zero > f$$-$(date +%N); read line";
    let arguments = ["sh", "-c", script];
    let program = Program::new(&arguments, limits());
    let ends = [(); 2].map(|()| {
        let mut serving = bench.sandbox.serve(&bench.folder, &program).unwrap();
        let started = serving.ending();
        // The first one ends by its input.
        if started.wait(Duration::from_secs(1)).is_none() {
            drop(serving.input.take());
        }
        started.wait(Duration::from_secs(20)).map(|(end, _)| end)
    });
    let met = ProgramEnd::Stopped(Limit::Disk(8 << 20));
    assert_eq!(ends, [Some(ProgramEnd::Exited(1)), Some(met)]);
}
