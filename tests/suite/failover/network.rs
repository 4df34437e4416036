//! Machines that a test can cut off from each other: namespaces of a network, which this binary, started
//! again, makes in one of its own.

use std::fs::File;
use std::os::fd::AsFd as _;
use std::process::{Child, Command, Stdio};

use ktsu_ledger::store::Reader;
use ktsu_ledger::{Ledger, LedgerPlace, StreamId, verify};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::{beside, quiet};
use crate::support::guarded;
use crate::support::load::PACE;
use crate::support::postgres::Server;
use crate::support::process::Process;
use crate::support::{KitDir, not_tested};

/// Set where this binary was started again.
const INSIDE: &str = "KTSU_TEST_NETWORK";
const PORT: &str = "5050";
const HELLO: &str = r#"
params: {schema: {type: object, required: [n], properties: {n: {}}}}
pipeline:
  - {id: t, transform: {inputs: [{from: params.n}], ops: []}}
output: {map: {n: "{{ step.t.result }}"}}
"#;

/// Starts an ignored test of this folder in a network of its own, if this user may have one.
pub(super) fn in_a_network(test: &str) {
    if Server::get().is_none() {
        return;
    }
    let tried = Command::new("unshare")
        .args(["--net", "ip", "link"])
        .output();
    if !tried.is_ok_and(|it| it.status.success()) {
        not_tested(
            "machines that are cut off: this user may not have a network of its own, or no ip",
        );
        return;
    }
    let inside = Command::new("unshare")
        .arg("--net")
        .arg(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "--nocapture"])
        .arg(format!("failover::{test}"))
        .env(INSIDE, "1")
        .output()
        .unwrap();
    let (out, err) = (inside.stdout, inside.stderr);
    let (out, err) = (String::from_utf8_lossy(&out), String::from_utf8_lossy(&err));
    assert!(
        inside.status.success() && out.contains("1 passed"),
        "{out}\n{err}"
    );
    eprintln!("{err}");
}

/// Returns `true` in a network of its own. An ignored test may be started without one.
pub(super) fn is_inside() -> bool {
    let is_inside = std::env::var_os(INSIDE).is_some();
    if !is_inside {
        eprintln!("{INSIDE} is not set");
    }
    is_inside
}

/// A kit whose workflow `hello` needs nothing.
pub(super) fn hello() -> KitDir {
    KitDir::new(&[("hello", HELLO)])
}

/// A machine with an address of its own.
pub(super) struct Machine {
    number: u8,
    /// Holds its network; nothing for the machine of the test itself.
    held: Option<Child>,
}

impl Machine {
    /// That of the test.
    pub(super) fn here() -> Self {
        Self::begun(1, None)
    }

    /// Another one, with links to those that there are.
    pub(super) fn linked(number: u8, others: &[&Self]) -> Self {
        let mut held = Command::new("unshare");
        held.args(["--net", "sleep", "600"]).stdin(Stdio::null());
        let held = held.spawn().unwrap();
        let network = |who: &str| std::fs::read_link(format!("/proc/{who}/ns/net")).unwrap();
        while network(&held.id().to_string()) == network("self") {
            std::thread::yield_now();
        }
        let machine = Self::begun(number, Some(held));
        for other in others {
            let (own, there) = (machine.device(), other.device());
            other.ip(&format!(
                "link add {own} type veth peer name {there} netns {}",
                machine.process()
            ));
            machine.route(other);
            other.route(&machine);
        }
        machine
    }

    fn begun(number: u8, held: Option<Child>) -> Self {
        let machine = Self { number, held };
        machine.ip("link set lo up");
        machine.ip(&format!("addr add {}/32 dev lo", machine.address()));
        machine
    }

    pub(super) fn address(&self) -> String {
        format!("10.41.1.{}", self.number)
    }

    /// The name of the link to it on others.
    fn device(&self) -> String {
        format!("to{}", self.number)
    }

    fn route(&self, other: &Self) {
        let (device, address) = (other.device(), other.address());
        self.ip(&format!("link set {device} up"));
        let own = self.address();
        self.ip(&format!("route add {address} dev {device} src {own}"));
    }

    fn process(&self) -> String {
        let held = self.held.as_ref().map(|held| held.id().to_string());
        held.unwrap_or("self".to_owned())
    }

    fn ip(&self, words: &str) {
        let done = self.command("ip").args(words.split(' ')).status();
        assert!(done.unwrap().success(), "{}: ip {words}", self.number);
    }

    /// The words before a command that make it one of this machine.
    pub(super) fn around(&self) -> Vec<String> {
        let words = ["nsenter", "--target", &self.process(), "--net"].map(str::to_owned);
        self.held.as_ref().map_or(Vec::new(), |_| words.to_vec())
    }

    /// A command of this machine.
    pub(super) fn command(&self, program: &str) -> Command {
        let words = [self.around(), vec![program.to_owned()]].concat();
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]);
        command
    }

    /// From here on, nothing passes the link to another one. Both find that out by waiting.
    pub(super) fn cut_from(&self, other: &Self) {
        for (one, other) in [(self, other), (other, self)] {
            let (address, device) = (other.address(), other.device());
            let nowhere = "lladdr 02:00:00:00:00:01 nud permanent";
            one.ip(&format!("neigh replace {address} {nowhere} dev {device}"));
        }
    }

    /// Everything passes it again.
    pub(super) fn mend(&self, other: &Self) {
        for (one, other) in [(self, other), (other, self)] {
            let (address, device) = (other.address(), other.device());
            one.ip(&format!("neigh del {address} dev {device}"));
        }
    }

    /// Makes a thread one of this machine.
    pub(super) fn entrance(&self) -> impl FnOnce() + Send + 'static {
        let network = File::open(format!("/proc/{}/ns/net", self.process())).unwrap();
        move || {
            let kind = Some(LinkNameSpaceType::Network);
            move_into_link_name_space(network.as_fd(), kind).unwrap();
        }
    }

    /// An engine, as its unit file starts it.
    pub(super) fn engine(&self, kit: &KitDir, address: &str) -> Process {
        let mut command = self.command(env!("CARGO_BIN_EXE_ktsu"));
        command.args(["start", "--standby", "--json", "--port", PORT]);
        command.args(["--runtime-port", "0", "--gateway-port", "0"]);
        command.args(["--ledger", address, "--kit"]);
        quiet(command.arg(kit.dir.path()));
        Process::spawn(command)
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        if let Some(held) = &mut self.held {
            let _ = held.kill();
            let _ = held.wait();
        }
    }
}

/// The address of a ledger on several machines.
pub(super) fn address(machines: &[&Machine], schema: &str) -> String {
    let hosts: Vec<String> = machines.iter().map(|machine| machine.address()).collect();
    let options = format!("sslmode=disable&options=-csearch_path%3D{schema}");
    format!("postgres://ktsu@{}/postgres?{options}", hosts.join(","))
}

/// Every acknowledged run is recorded, and comes to its end; nothing is wrong with the ledger.
pub(super) async fn has_all(place: &LedgerPlace, acknowledged: &[String]) {
    let reader = beside(|| Ledger::open(place).reader()).unwrap();
    for run in acknowledged {
        guarded("its end", completes(reader.as_ref(), run)).await;
    }
    let options = verify::VerifyOptions::default();
    let verified = || ktsu_history::verify::ledger(place, &options, &mut |_| {});
    assert_eq!(beside(verified).unwrap().problems, []);
}

async fn completes(reader: &dyn Reader, run: &str) {
    let stream = StreamId::run(run).unwrap();
    loop {
        let row = beside(|| reader.row(&stream)).unwrap();
        let row = row.unwrap_or_else(|| panic!("{run} was acknowledged, and is not recorded"));
        match row.status.as_str() {
            "complete" => return,
            "running" | "pending" => tokio::time::sleep(PACE).await,
            other => panic!("{run} is {other}"),
        }
    }
}
