use super::*;

struct Lab {
    supervisor: Supervisor,
    sender: mpsc::Sender<Box<Message>>,
    mailbox: mpsc::Receiver<Box<Message>>,
}

impl Lab {
    fn new() -> Self {
        let (sender, mailbox) = mpsc::channel(8);
        Self {
            supervisor: Supervisor::new(Fleet::of([false])),
            sender,
            mailbox,
        }
    }

    fn watch(&self, step: &str) -> TaskName {
        let name = TaskName {
            run: "run_1".to_owned(),
            step: step.to_owned(),
        };
        let task = WatchRequest {
            attempt: 1,
            scope: String::new(),
            step: step.to_owned(),
            item: None,
            mailbox: self.sender.downgrade(),
        };
        self.supervisor.watch(name.clone(), task);
        name
    }

    fn beat(&self, instance: &str, steps: &[&str]) -> Vec<String> {
        let task = |step: &&str| HeartbeatTask {
            run_id: "run_1".to_owned(),
            step_id: (*step).to_owned(),
            attempt: Some(1),
        };
        let beat = Heartbeat {
            runtime_id: instance.to_owned(),
            active: steps.iter().map(task).collect(),
            places: None,
        };
        let (heard, is_unknown) = self.supervisor.heartbeat(&beat);
        if is_unknown {
            self.supervisor.identified(0, instance, None);
            self.supervisor.instance_replaced(&beat);
        }
        heard.stop.into_iter().map(|task| task.step_id).collect()
    }

    fn tick(&self, times: u64) {
        (0..times).for_each(|_| self.supervisor.tick());
    }

    fn lost(&mut self) -> Vec<(String, LostReason, bool)> {
        let mut lost = Vec::new();
        while let Ok(message) = self.mailbox.try_recv() {
            if let Message::Lost { lost: one, .. } = *message {
                lost.push((one.step, one.reason, one.runtime_alive));
            }
        }
        lost
    }
}

#[test]
fn a_task_is_lost_after_fifteen_ticks_without_a_beat_that_names_it() {
    let mut lab = Lab::new();
    lab.watch("a");
    lab.watch("b");
    lab.tick(10);
    assert!(lab.beat("rt", &["b"]).is_empty());
    lab.tick(5);
    assert_eq!(lab.lost(), []);
    lab.tick(1);
    assert_eq!(lab.lost(), [("a".to_owned(), LostReason::Heartbeat, true)]);
    lab.tick(MAX_SILENT_TICKS);
    assert_eq!(lab.lost(), [("b".to_owned(), LostReason::Heartbeat, false)]);
}

#[test]
fn a_new_instance_that_does_not_name_what_the_old_one_had_lost_it_at_once() {
    let mut lab = Lab::new();
    lab.watch("a");
    lab.watch("b");
    let fresh = lab.watch("c");
    lab.beat("one", &["a", "b"]);
    lab.beat("two", &["b"]);
    assert_eq!(lab.lost(), [("a".to_owned(), LostReason::Instance, true)]);
    lab.supervisor.accepted((0, &fresh, 1), Some("two"), None);
    lab.beat("two", &["b"]);
    assert_eq!(lab.lost(), []);
}

#[test]
fn a_runtime_hears_what_no_one_waits_for() {
    let lab = Lab::new();
    let name = lab.watch("a");
    assert_eq!(lab.beat("rt", &["a", "gone"]), ["gone"]);
    lab.supervisor.forget(&name);
    assert_eq!(lab.beat("rt", &["a"]), ["a"]);
    lab.watch("a");
    lab.supervisor.forget_run("run_1");
    assert_eq!(lab.beat("rt", &["a"]), ["a"]);
}

#[test]
fn nothing_of_a_paused_run_is_given_up_because_no_runtime_is_there() {
    let mut lab = Lab::new();
    lab.watch("a");
    lab.supervisor.set_paused("run_1", true);
    lab.tick(3 * MAX_SILENT_TICKS);
    assert!(lab.mailbox.try_recv().is_err());
    lab.supervisor.set_paused("run_1", false);
    lab.tick(MAX_SILENT_TICKS);
    assert!(lab.mailbox.try_recv().is_err(), "it has time to come back");
    lab.tick(1);
    assert!(lab.mailbox.try_recv().is_ok());
}

#[test]
fn a_runtime_learns_which_of_its_tasks_are_suspended_until_their_run_continues() {
    let lab = Lab::new();
    lab.watch("a");
    let still = || {
        let task = HeartbeatTask {
            run_id: "run_1".to_owned(),
            step_id: "a".to_owned(),
            attempt: Some(1),
        };
        let beat = Heartbeat {
            runtime_id: "rt".to_owned(),
            active: vec![task],
            places: None,
        };
        lab.supervisor.heartbeat(&beat).0.paused.len()
    };
    assert_eq!(still(), 0);
    lab.supervisor.set_paused("run_1", true);
    assert_eq!(still(), 1);
    lab.supervisor.set_paused("run_1", false);
    assert_eq!(still(), 0);
    lab.supervisor.set_paused("run_1", true);
    lab.supervisor.forget_run("run_1");
    assert_eq!(still(), 0);
}

#[test]
fn a_full_mailbox_is_tried_again_at_the_next_tick() {
    let mut lab = Lab::new();
    for step in ["a", "b", "c", "d", "e", "f", "g", "h", "i"] {
        lab.watch(step);
    }
    lab.tick(MAX_SILENT_TICKS + 1);
    assert_eq!(lab.lost().len(), 8);
    lab.tick(1);
    assert_eq!(lab.lost().len(), 1);
}

/// Two runtimes, whose instances are known: `one` and `two`.
fn lab_of_two() -> Lab {
    let lab = Lab {
        supervisor: Supervisor::new(Fleet::of([false, false])),
        ..Lab::new()
    };
    lab.supervisor.identified(0, "one", Some(1));
    lab.supervisor.identified(1, "two", Some(1));
    lab
}

#[test]
fn a_second_runtime_costs_the_first_nothing() {
    let mut lab = lab_of_two();
    let (a, b) = (lab.watch("a"), lab.watch("b"));
    lab.supervisor.accepted((0, &a, 1), Some("one"), None);
    lab.supervisor.accepted((1, &b, 1), Some("two"), None);
    assert!(lab.beat("one", &["a"]).is_empty());
    assert!(lab.beat("two", &["b"]).is_empty());
    assert_eq!(lab.lost(), []);
    lab.supervisor.identified(0, "new one", None);
    lab.beat("new one", &[]);
    let lost = [("a".to_owned(), LostReason::Instance, true)];
    assert_eq!(lab.lost(), lost, "b is with the other runtime");
}

#[test]
fn an_attempt_that_two_runtimes_have_is_stopped_at_the_second() {
    let lab = lab_of_two();
    let a = lab.watch("a");
    lab.supervisor.accepted((0, &a, 1), Some("one"), None);
    lab.supervisor.accepted((1, &a, 1), Some("two"), None);
    assert_eq!(lab.beat("two", &["a"]), ["a"]);
    assert!(lab.beat("one", &["a"]).is_empty());
}

#[test]
fn an_attempt_that_a_runtime_has_is_not_offered_again() {
    let lab = lab_of_two();
    for (step, learn) in [("beat", true), ("report", false)] {
        let name = lab.watch(step);
        assert!(lab.supervisor.awaits_runtime(&name, 1));
        match learn {
            true => drop(lab.beat("one", &[step])),
            false => lab.supervisor.record_contact(&name, 1),
        }
        assert!(!lab.supervisor.awaits_runtime(&name, 1), "{step}");
    }
}

#[test]
fn a_task_that_waits_for_a_place_is_not_lost() {
    let mut lab = lab_of_two();
    let waiting = lab.watch("waiting");
    for _ in 0..3 {
        lab.tick(MAX_SILENT_TICKS);
        lab.supervisor.waits_for_place(&waiting, 1);
    }
    assert_eq!(lab.lost(), []);
    assert!(lab.supervisor.awaits_runtime(&waiting, 1));
    lab.tick(MAX_SILENT_TICKS + 1);
    assert_eq!(lab.lost().len(), 1);
}

#[tokio::test]
async fn the_end_of_a_task_wakes_one_that_waits_for_its_place() {
    let lab = lab_of_two();
    let a = lab.watch("a");
    for (index, id) in ["one", "two"].into_iter().enumerate() {
        let name = lab.watch(id);
        lab.supervisor.accepted((index, &name, 1), Some(id), None);
    }
    assert!(matches!(lab.supervisor.place(&[]), TaskPlacement::Full(_)));
    assert!(lab.supervisor.awaits_runtime(&a, 1));
    let name = TaskName {
        step: "two".to_owned(),
        ..a
    };
    lab.supervisor.forget(&name);
    lab.supervisor.place_freed().await;
    assert!(matches!(
        lab.supervisor.place(&[]),
        TaskPlacement::Offer(1, _)
    ));
}
