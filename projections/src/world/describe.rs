//! Events of worlds in a few words.

use ktsu_ledger::event::{FiringVerdict, WorldEvent};

/// The content of an event, for people.
pub fn describe_world(event: &WorldEvent) -> String {
    let by = event
        .by()
        .map_or_else(String::new, |by| format!(" by {}", by.id));
    match event {
        WorldEvent::ObjectCreated(event) => format!("{}{by}", event.id),
        WorldEvent::ObjectPatched(event) => format!("{}{by}", event.id),
        WorldEvent::RelationCreated(event) => format!(
            "{} from {} to {}{by}",
            event.kind, event.source_id, event.target_id
        ),
        WorldEvent::RelationRemoved(event) => format!("{}{by}", event.id),
        WorldEvent::Noted(_) => by.trim_start().to_owned(),
        WorldEvent::Commanded(event) => match event.suppressed {
            true => format!("{}: suppressed", event.topic),
            false => event.topic.clone(),
        },
        WorldEvent::Fired(event) => {
            let candidates = event.candidates.iter().map(|candidate| {
                let verdict = match candidate.verdict {
                    FiringVerdict::Failed => ": could not be evaluated",
                    FiringVerdict::False => ": no",
                    FiringVerdict::Fired => "",
                    FiringVerdict::Postponed => {
                        let after = candidate.after_ms.unwrap_or_default();
                        return format!("{}: in {after} ms", candidate.responder);
                    }
                };
                format!("{}{verdict}", candidate.responder)
            });
            candidates.collect::<Vec<_>>().join(", ")
        }
        WorldEvent::Completed(event) => event.address.clone(),
        WorldEvent::Failed(event) => format!("{}: {}", event.code, event.message),
        WorldEvent::Rejected(event) => format!("{}: {}", event.kind, event.message),
        WorldEvent::Loaded(event) => {
            let worlds = event.worlds.iter();
            let worlds = worlds.map(|world| format!("{} {}", world.name, world.version));
            worlds.collect::<Vec<_>>().join(", ")
        }
        WorldEvent::BudgetExhausted(event) => event.reasons.join(", "),
        WorldEvent::BudgetRaised(event) => {
            let limits = [
                ("max_events", event.max_events),
                ("max_llm_cost_micro_usd", event.max_llm_cost_micro_usd),
                (
                    "max_recursion_depth",
                    event.max_recursion_depth.map(u64::from),
                ),
                ("max_wall_ms", event.max_wall_ms),
            ];
            let limits = limits.into_iter();
            let limits = limits.filter_map(|(name, limit)| Some(format!("{name}={}", limit?)));
            let limits = limits.collect::<Vec<_>>().join(", ");
            let why = event.reason.as_deref().map(|why| format!(": {why}"));
            format!("{limits}{by}{}", why.unwrap_or_default())
        }
    }
}
