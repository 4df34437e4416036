//! From a group to the models to call, in rounds: one per round for `round_robin`, all of them for
//! the other strategies.

use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use super::config::{Group, ProviderModel, Strategy};

/// A group with its turn.
#[derive(Debug)]
pub(super) struct Route {
    pub(super) group: Group,
    /// The models in the order in which they are asked.
    order: Vec<ProviderModel>,
    calls: AtomicUsize,
}

/// A call's own place in the turns of its group.
#[derive(Debug, Clone, Copy)]
pub(super) struct RouteTurn(usize);

impl Route {
    pub(super) fn new(group: Group) -> Self {
        let mut order = group.models.clone();
        if group.strategy == Strategy::CostOptimized {
            // Stable: models of one price, and those without, stay as they are written.
            order.sort_by_key(|model| {
                let price = group.prices.of(&model.id);
                price.map_or(u64::MAX, |price| price.input.saturating_add(price.output))
            });
        }
        Self {
            group,
            order,
            calls: AtomicUsize::new(0),
        }
    }

    /// The values that decide which model answers, and how, given where each provider is.
    pub(super) fn describe(&self, place: impl Fn(&str) -> Option<String>) -> Value {
        let models = self.order.iter().map(|model| {
            json!({"id": model.id, "place": place(&model.provider), "provider": model.provider})
        });
        let strategy = match self.group.strategy {
            Strategy::RoundRobin => "round_robin",
            Strategy::Fallback => "fallback",
            Strategy::CostOptimized => "cost_optimized",
        };
        json!({
            "models": models.collect::<Vec<_>>(),
            "strategy": strategy,
            "temperature": self.group.temperature,
        })
    }

    /// The turn of the next call.
    pub(super) fn turn(&self) -> RouteTurn {
        RouteTurn(self.calls.fetch_add(1, Ordering::Relaxed))
    }

    /// The models of a round, counted from 0, in the order in which they are asked.
    pub(super) fn round(&self, turn: RouteTurn, round: u32) -> &[ProviderModel] {
        match self.group.strategy {
            Strategy::Fallback | Strategy::CostOptimized => &self.order,
            Strategy::RoundRobin => {
                let round = usize::try_from(round).unwrap_or_default();
                let at = turn.0.wrapping_add(round).checked_rem(self.order.len());
                let at = at.unwrap_or_default();
                self.order.get(at..=at).unwrap_or_default()
            }
        }
    }

    /// Returns `true` if the next model is asked where one fails.
    pub(super) fn falls_back(&self) -> bool {
        self.group.strategy != Strategy::RoundRobin && self.order.len() > 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::price::{Price, Prices};

    fn route(strategy: Strategy, prices: &[(&str, u64, u64)]) -> Route {
        let models = ["a/1", "b/2", "c/x/y"].map(|name| ProviderModel::parse(name).unwrap());
        let mut own = Prices::default();
        for (model, input, output) in prices {
            let price = Price {
                input: *input,
                output: *output,
                cached: None,
            };
            own.set(model, price);
        }
        Route::new(Group {
            name: "g".to_owned(),
            models: models.to_vec(),
            strategy,
            retry: None,
            deadline: None,
            temperature: None,
            prices: own,
        })
    }

    fn rounds(route: &Route, count: u32) -> Vec<String> {
        let turn = route.turn();
        let names = |round| {
            let names = route
                .round(turn, round)
                .iter()
                .map(ProviderModel::to_string);
            names.collect::<Vec<_>>().join(" ")
        };
        (0..count).map(names).collect()
    }

    #[test]
    fn models_take_turns_beginning_with_the_first() {
        let route = route(Strategy::RoundRobin, &[]);
        let turns: Vec<String> = (0..4).flat_map(|_| rounds(&route, 1)).collect();
        assert_eq!(turns, ["a/1", "b/2", "c/x/y", "a/1"]);
        assert_eq!(route.group.models[2].provider, "c");
        assert_eq!(route.group.models[2].id, "x/y");
    }

    #[test]
    fn who_asks_again_asks_the_next_whatever_others_do_meanwhile() {
        let route = route(Strategy::RoundRobin, &[]);
        route.turn();
        assert_eq!(rounds(&route, 3), ["b/2", "c/x/y", "a/1"]);
    }

    #[test]
    fn a_fallback_asks_all_in_order_every_time() {
        let route = route(Strategy::Fallback, &[("2", 1, 1)]);
        for _ in 0..2 {
            assert_eq!(rounds(&route, 2), ["a/1 b/2 c/x/y"; 2]);
        }
    }

    #[test]
    fn the_cheapest_is_asked_first_and_one_without_a_price_last() {
        let cheap =
            |prices: &[(&str, u64, u64)]| rounds(&route(Strategy::CostOptimized, prices), 1);
        assert_eq!(cheap(&[("2", 5, 9), ("x/y", 6, 7)]), ["c/x/y b/2 a/1"]);
        assert_eq!(
            cheap(&[("1", 3, 3), ("x/y", 2, 4), ("2", 0, 0)]),
            ["b/2 a/1 c/x/y"]
        );
        assert_eq!(cheap(&[]), ["a/1 b/2 c/x/y"]);
    }

    /// Requests to routes that are described alike may have one reply.
    #[test]
    fn a_description_changes_with_models_places_strategy_and_temperature_and_nothing_else() {
        let place = |name: &str| Some(format!("openai http://{name}/v1"));
        let plain = || route(Strategy::Fallback, &[]);
        let mut hot = plain();
        hot.group.temperature = Some(0.5);
        let mut fewer = plain().group;
        fewer.models.pop();
        let mut patient = plain().group;
        patient.deadline = Some(std::time::Duration::from_secs(1));
        let others = [
            hot.describe(place),
            Route::new(fewer).describe(place),
            route(Strategy::RoundRobin, &[]).describe(place),
            route(Strategy::CostOptimized, &[("2", 1, 1)]).describe(place),
            plain().describe(|_| Some("scripted".to_owned())),
        ];
        for other in others {
            assert_ne!(other, plain().describe(place));
        }
        assert_eq!(Route::new(patient).describe(place), plain().describe(place));
    }
}
