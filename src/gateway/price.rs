//! The cost of a call: a table of prices, and arithmetic that rounds once (decision E3).
//!
//! A price is stored as micro-USD per million tokens, which is a whole number for every price with
//! at most six decimals. Tokens times price is then exact, and only the division by a million
//! rounds: half up, once per call.

use std::collections::BTreeMap;

use serde_json::{Value, json};

/// The version of the built-in table; raised with every change of it.
pub const VERSION: &str = "2026-11";

/// The suffix of a table's version where a group's own prices count.
const OVERRIDDEN: &str = "+gateway.yaml";

/// The decimals of a price in US dollars that are kept.
const DECIMALS: i64 = 6;

/// The price of a million tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Price {
    /// Sent, in micro-USD per million.
    pub input: u64,
    /// Received, in micro-USD per million.
    pub output: u64,
    /// Sent, and read by the provider before; as any other sent if there is no such price.
    pub cached: Option<u64>,
}

/// Model, and micro-USD per million tokens sent and received.
const BUILT_IN: [(&str, u64, u64); 11] = [
    ("claude-3-5-haiku-20241022", 800_000, 4_000_000),
    ("claude-3-5-sonnet-20241022", 3_000_000, 15_000_000),
    ("claude-3-haiku-20240307", 250_000, 1_250_000),
    ("claude-3-opus-20240229", 15_000_000, 75_000_000),
    ("claude-haiku-4-5-20251001", 800_000, 4_000_000),
    ("claude-opus-4-6", 15_000_000, 75_000_000),
    ("claude-sonnet-4-6", 3_000_000, 15_000_000),
    ("gpt-3.5-turbo", 500_000, 1_500_000),
    ("gpt-4-turbo", 10_000_000, 30_000_000),
    ("gpt-4o", 2_500_000, 10_000_000),
    ("gpt-4o-mini", 150_000, 600_000),
];

/// The prices of one group: its own, then the built-in ones.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Prices {
    own: BTreeMap<String, Price>,
}

impl Prices {
    /// A group's own price of a model, by the model's bare id.
    pub fn set(&mut self, model: &str, price: Price) {
        self.own.insert(model.to_owned(), price);
    }

    /// The price of a model, if it has one.
    pub fn of(&self, model: &str) -> Option<Price> {
        let built_in = || BUILT_IN.iter().find(|(name, ..)| *name == model);
        let built_in = || {
            built_in().map(|&(_, input, output)| Price {
                input,
                output,
                cached: None,
            })
        };
        self.own.get(model).copied().or_else(built_in)
    }

    /// The version of the table that the price of a model comes from.
    pub fn version(&self, model: &str) -> String {
        let own = self.own.contains_key(model);
        format!("{VERSION}{}", if own { OVERRIDDEN } else { "" })
    }
}

/// A table of prices, by what it comes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    /// BLAKE3 of every price, in order.
    pub digest: String,
    /// [`VERSION`], and whether a group has prices of its own.
    pub version: String,
}

/// The built-in prices and those of groups, by the names of the groups.
pub fn table<'a>(groups: impl Iterator<Item = (&'a str, &'a Prices)>) -> Table {
    let mut hasher = blake3::Hasher::new();
    // As JSON, so that no name can look like two.
    let mut row = |row: Value| {
        hasher.update(format!("{row}\n").as_bytes());
    };
    for (model, input, output) in BUILT_IN {
        row(json!(["", model, input, output]));
    }
    let mut own: Vec<(&str, &str, &Price)> = groups
        .flat_map(|(group, prices)| {
            let prices = prices.own.iter();
            prices.map(move |(model, price)| (group, model.as_str(), price))
        })
        .collect();
    own.sort_by_key(|(group, model, _)| (*group, *model));
    for (group, model, price) in &own {
        row(match price.cached {
            None => json!([group, model, price.input, price.output]),
            Some(cached) => json!([group, model, price.input, price.output, cached]),
        });
    }
    let overridden = if own.is_empty() { "" } else { OVERRIDDEN };
    Table {
        digest: hasher.finalize().to_hex().to_string(),
        version: format!("{VERSION}{overridden}"),
    }
}

impl Price {
    /// The cost of a call in micro-USD, rounded half up. The cached tokens are among those sent.
    pub fn cost(self, tokens_in: u64, tokens_cached: u64, tokens_out: u64) -> u64 {
        const MILLION: u128 = 1_000_000;
        let part = |tokens: u64, price: u64| u128::from(tokens) * u128::from(price);
        let cached = tokens_cached.min(tokens_in);
        let sum = part(tokens_in - cached, self.input)
            .saturating_add(part(cached, self.cached.unwrap_or(self.input)))
            .saturating_add(part(tokens_out, self.output));
        let cost = sum.saturating_add(MILLION / 2) / MILLION;
        u64::try_from(cost).unwrap_or(u64::MAX)
    }
}

/// Micro-USD from a decimal in US dollars as JSON writes it; none with more decimals than are
/// kept, below zero, or beyond a million dollars.
pub fn parse(text: &str) -> Option<u64> {
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let fraction = fraction.trim_end_matches('0');
    let digits = format!("{whole}{fraction}");
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let digits: u64 = digits.parse().ok()?;
    if digits == 0 {
        return Some(0);
    }
    let exponent: i64 = exponent.parse().ok()?;
    let shift = exponent
        .checked_add(DECIMALS)?
        .checked_sub(i64::try_from(fraction.len()).ok()?)?;
    let power = 10u64.checked_pow(u32::try_from(shift.unsigned_abs()).ok()?)?;
    let micro = if shift >= 0 {
        digits.checked_mul(power)?
    } else if digits.is_multiple_of(power) {
        digits / power
    } else {
        return None;
    };
    (micro <= 1_000_000_000_000).then_some(micro)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cost_is_rounded_half_up_once_over_both_directions() {
        let mini = Prices::default().of("gpt-4o-mini").unwrap();
        // 1000 in at 0.15 and 200 out at 0.60 dollars a million: 0.00027 dollars.
        assert_eq!(mini.cost(1000, 0, 200), 270);
        // 0.15 micro-dollars a token: 3 are 0.45 and round down, 4 are 0.60 and round up.
        assert_eq!((mini.cost(3, 0, 0), mini.cost(4, 0, 0)), (0, 1));
        // Apart 0.45 and 0.6 would be 0 and 1; together they are 1.05.
        assert_eq!(mini.cost(3, 0, 1), 1);
        let half = Price {
            input: 500_000,
            output: 0,
            cached: None,
        };
        assert_eq!((half.cost(1, 0, 0), half.cost(3, 0, 0)), (1, 2));
        let dear = Price {
            input: u64::MAX,
            output: u64::MAX,
            cached: Some(u64::MAX),
        };
        assert_eq!(dear.cost(u64::MAX, 5, u64::MAX), u64::MAX);
    }

    #[test]
    fn cached_tokens_have_a_price_of_their_own_where_one_is_given() {
        let mut price = Price {
            input: 3_000_000,
            output: 15_000_000,
            cached: Some(300_000),
        };
        assert_eq!(price.cost(1000, 900, 10), 300 + 270 + 150);
        // More cached than sent is what no provider should say: all that was sent was cached.
        assert_eq!(price.cost(10, 900, 0), 3);
        price.cached = None;
        assert_eq!(price.cost(1000, 900, 10), 3000 + 150);
    }

    #[test]
    fn the_digest_of_a_table_without_cached_prices_is_what_it_was() {
        let digest = |cached| {
            let mut prices = Prices::default();
            let price = Price {
                input: 1,
                output: 2,
                cached,
            };
            prices.set("m", price);
            table(std::iter::once(("g", &prices))).digest
        };
        let kept = "e57eccebe7d0855b3ea8c36c8002357fe26a0d422d0add36cc235a063666f810";
        assert_eq!(digest(None), kept);
        assert_ne!(digest(Some(1)), kept);
    }

    #[test]
    fn a_price_is_read_without_a_float_between() {
        for (text, micro) in [
            ("0.15", Some(150_000)),
            ("3", Some(3_000_000)),
            ("3.0", Some(3_000_000)),
            ("0", Some(0)),
            ("0.0", Some(0)),
            ("0.000001", Some(1)),
            ("1e-6", Some(1)),
            ("1.5e-5", Some(15)),
            ("1e2", Some(100_000_000)),
            ("0.1000000", Some(100_000)),
            ("0.0000001", None),
            ("1e-7", None),
            ("-1", None),
            ("1000000.1", None),
            ("1e99", None),
            ("1e-99999999999999999999", None),
            ("", None),
            (".", None),
        ] {
            assert_eq!(parse(text), micro, "{text}");
        }
    }

    #[test]
    fn a_groups_own_price_goes_before_the_table_and_changes_the_version() {
        let mut prices = Prices::default();
        assert_eq!(prices.version("gpt-4o"), "2026-11");
        let own = Price {
            input: 1,
            output: 2,
            cached: None,
        };
        prices.set("gpt-4o", own);
        assert_eq!(prices.of("gpt-4o"), Some(own));
        assert_eq!(prices.version("gpt-4o"), "2026-11+gateway.yaml");
        assert_eq!(prices.version("gpt-4o-mini"), "2026-11");
        assert_eq!(prices.of("nobody-knows"), None);
    }
}
