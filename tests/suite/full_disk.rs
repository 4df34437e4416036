//! A full disk is a state: a small file system, filled to its end and emptied again.
//!
//! It is mounted in a namespace of its own, by this binary started again there, so that nothing is
//! left of it.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::json;

use crate::support::process::Process;
use crate::support::sink::Reply;
use crate::support::{KitDir, Sink, cannot_mount, guarded};

const DISK: &str = "KTSU_TEST_DISK";
const MIB: u64 = 1024 * 1024;

#[test]
fn a_full_disk_stops_what_is_new_then_all_and_the_next_start_waits_for_room() {
    if let Some(why) = cannot_mount() {
        crate::support::not_tested(&format!("what happens on a full disk: {why}"));
        return;
    }
    let disk = tempfile::tempdir().unwrap();
    let inside = Command::new("unshare")
        .arg("-m")
        .arg(std::env::current_exe().unwrap())
        .args([
            "--ignored",
            "--exact",
            "--nocapture",
            "full_disk::on_a_small_disk",
        ])
        .env(DISK, disk.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&inside.stdout);
    let err = String::from_utf8_lossy(&inside.stderr);
    assert!(inside.status.success(), "{said}\n{err}");
    assert!(said.contains("1 passed"), "{said}");
}

/// Everything that is left, but for some.
fn fill(path: &Path, left: u64) {
    let mut file = std::fs::File::create(path).unwrap();
    let folder = path.parent().unwrap();
    let block = vec![0; 1024 * 1024];
    while free(folder) > left {
        let some = usize::try_from((free(folder) - left).min(block.len() as u64)).unwrap();
        if file.write_all(&block[..some]).is_err() {
            return;
        }
    }
}

fn free(folder: &Path) -> u64 {
    let said = Command::new("df")
        .args(["--output=avail", "-B1"])
        .arg(folder)
        .output()
        .unwrap();
    let said = String::from_utf8(said.stdout).unwrap();
    said.lines().last().unwrap().trim().parse().unwrap()
}

/// What the test above starts.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "another test starts this in a namespace of its own"]
async fn on_a_small_disk() {
    let Some(disk) = std::env::var_os(DISK).map(PathBuf::from) else {
        eprintln!("{DISK} is not set");
        return;
    };
    let mounted = Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=96m,mode=700", "none"])
        .arg(&disk)
        .status();
    assert!(mounted.unwrap().success());
    let (ledger, reserve) = (disk.join("ledger.db"), disk.join("ledger.db.reserve"));
    let sink = Sink::scripted(|_| Reply::When("gate".to_owned(), 200)).await;
    let long = "{id: long, webhook: {url: '{{ env.SINK }}'}}";
    let kit = KitDir::new(&[
        (
            "w",
            "pipeline: [{id: t, transform: {inputs: [], ops: []}}]\n",
        ),
        (
            "long",
            &format!("env: [{{name: SINK}}]\npipeline: [{long}]\n"),
        ),
    ]);
    let pairs = [("SINK", sink.url.as_str())];
    let command = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ktsu"));
        command.args(arguments).arg("--ledger").arg(&ledger);
        command.env_clear().env("SINK", &sink.url);
        command.current_dir(&disk);
        command
    };
    let ktsu = |arguments: &[&str]| {
        let said = command(arguments).output().unwrap();
        let err = String::from_utf8_lossy(&said.stderr).into_owned();
        (said.status.success(), err)
    };
    let start = || Process::start(kit.dir.path(), &ledger, &pairs);
    let first = start();
    let client = first.client();
    let done = client.run("w", json!({})).await["run_id"].clone();
    let done = done.as_str().unwrap().to_owned();
    let under_way = client.invoke("long", json!({})).await;
    sink.until(|heard| heard.len() == 1).await;
    assert_eq!(std::fs::metadata(&reserve).unwrap().len(), 8 * MIB);

    // Below the low-water mark: nothing new begins, everything else goes on.
    let ballast = disk.join("ballast");
    fill(&ballast, 40 * MIB);
    let low = async {
        while client.get("/health").await.status == 200 {
            tokio::task::yield_now().await;
        }
    };
    guarded("the disk to be looked at", low).await;
    let health = client.get("/health").await.json();
    assert_eq!(health["ledger"], json!({"state": "low_on_space"}));
    let refused = client.post("/invoke/w", "{}").await;
    assert_eq!(
        (refused.status, &refused.json()["code"]),
        (507, &json!("disk_full"))
    );
    assert_eq!(client.get(&format!("/runs/{done}")).await.status, 200);

    // No space at all: the first commit that fails is the last.
    let last = disk.join("last");
    fill(&last, 0);
    sink.open("gate");
    assert_eq!(first.ended(), Some(2));
    sink.forget();
    fill(&disk.join("rest"), 0);

    // The next start comes up on the reserve, reads, waits, and keeps what it did not need.
    let second = start();
    let kept = std::fs::metadata(&reserve).unwrap().len();
    assert!((MIB..8 * MIB).contains(&kept), "{kept}");
    let client = second.client();
    let health = client.get("/health").await;
    assert_eq!(health.status, 503);
    assert_eq!(health.json()["ledger"], json!({"state": "full"}));
    let view = client.get(&format!("/runs/{done}")).await.json();
    assert_eq!(view["run"]["status"], "complete");
    let view = client.get(&format!("/runs/{under_way}")).await.json();
    assert_eq!(view["run"]["status"], "running");
    for path in ["/invoke/w".to_owned(), format!("/runs/{under_way}/fork")] {
        let refused = client.post(&path, "{}").await;
        assert_eq!(refused.status, 507, "{path}: {}", refused.text());
    }
    assert_eq!(sink.heard(), [], "nothing is taken up");
    // Once more, whatever it left free.
    second.kill();
    fill(&disk.join("more"), 0);
    let third = start();
    let client = third.client();
    assert_eq!(client.get(&format!("/runs/{done}")).await.status, 200);
    assert_eq!(sink.heard(), []);
    third.kill();

    // A command that gives up has taken nothing from the next start.
    fill(&disk.join("most"), 0);
    let said = ktsu(&["run", kit.dir.path().to_str().unwrap(), "w"]);
    assert!(!said.0 && said.1.contains("disk"), "{said:?}");
    assert!(reserve.exists());
    // With nothing at all a start says what can still be done.
    std::fs::remove_file(&reserve).unwrap();
    fill(&disk.join("all"), 0);
    let said = ktsu(&["run", kit.dir.path().to_str().unwrap(), "w"]);
    assert!(
        !said.0 && said.1.contains("ktsu start --read-only"),
        "{said:?}"
    );
    let reading = command(&["start", "--json", "--read-only", "--port", "0"]);
    let reading = Process::spawn(reading);
    let answer = reading.client().get(&format!("/runs/{done}")).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    reading.kill();

    // With room it goes on by itself.
    std::fs::remove_file(disk.join("all")).unwrap();
    let fourth = start();
    let client = fourth.client();
    for file in [
        ballast,
        last,
        disk.join("rest"),
        disk.join("more"),
        disk.join("most"),
    ] {
        std::fs::remove_file(file).unwrap();
    }
    sink.until(|heard| heard.len() == 1).await;
    sink.open("gate");
    assert_eq!(client.ended(&under_way).await["status"], "complete");
    client.run("w", json!({})).await;
    let well = async {
        while client.get("/health").await.status != 200 {
            tokio::task::yield_now().await;
        }
    };
    guarded("that all is well", well).await;
    assert_eq!(std::fs::metadata(&reserve).unwrap().len(), 8 * MIB);
    fourth.stop();
    let verified = ktsu(&["verify"]);
    assert!(verified.0, "{verified:?}");
}
