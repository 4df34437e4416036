//! Times, durations and costs as pages show them.

use ktsu_ledger::Timestamp;
use ktsu_ledger::event::Score;
use ktsu_projections::lineage::dollars;

/// `2026-11-24 09:12:44 UTC`: all pages show one time zone.
pub(crate) fn moment(at: Timestamp) -> String {
    let text = at.to_string();
    let (date, time) = text.split_once('T').unwrap_or((&text, ""));
    let time = time.get(..8).unwrap_or(time);
    format!("{date} {time} UTC")
}

/// `2026-11-24 09:12:44.500`, where the zone is named beside it.
pub(crate) fn exact_moment(at: Timestamp) -> String {
    let text = at.to_string().replace('T', " ");
    text.get(..23).unwrap_or(&text).to_owned()
}

/// `491 ms`, `12.3 s`, `2 min 14 s`, `3 h 5 min`, `2 d 4 h`.
pub(crate) fn duration(ms: u64) -> String {
    let (s, min) = (ms / 1_000, ms / 60_000);
    let (h, d) = (min / 60, min / 1_440);
    match ms {
        0..1_000 => format!("{ms} ms"),
        1_000..60_000 => format!("{}.{} s", s, ms % 1_000 / 100),
        60_000..3_600_000 => format!("{min} min {} s", s % 60),
        3_600_000..86_400_000 => format!("{h} h {} min", min % 60),
        _ => format!("{d} d {} h", h % 24),
    }
}

/// `$0.0117`; nothing of what cost nothing.
pub(crate) fn cost(micro_usd: u64) -> String {
    match micro_usd {
        0 => String::new(),
        micro_usd => dollars(micro_usd),
    }
}

/// `812 bytes`, `4.9 KiB`, `2.1 MiB`.
pub(crate) fn size(bytes: usize) -> String {
    const KIB: usize = 1_024;
    match bytes {
        0..KIB => counted(bytes as u64, "byte"),
        KIB..1_048_576 => format!("{:.1} KiB", bytes as f64 / KIB as f64),
        _ => format!("{:.1} MiB", bytes as f64 / (KIB * KIB) as f64),
    }
}

/// `0.875`, `1`: a score with three decimals at most.
pub(crate) fn score(score: Score) -> String {
    let text = format!("{:.3}", score.get());
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// `1 call`, `2 calls`.
pub(crate) fn counted(count: u64, noun: &str) -> String {
    match count {
        1 => format!("1 {noun}"),
        count => format!("{count} {noun}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_two_units_at_most() {
        for (ms, shown) in [
            (0, "0 ms"),
            (999, "999 ms"),
            (1_000, "1.0 s"),
            (59_999, "59.9 s"),
            (134_000, "2 min 14 s"),
            (11_100_000, "3 h 5 min"),
            (187_200_000, "2 d 4 h"),
            (u64::MAX, "213503982334 d 14 h"),
        ] {
            assert_eq!(duration(ms), shown);
        }
    }

    #[test]
    fn scores_have_three_decimals_at_most() {
        for (number, shown) in [
            (1.0, "1"),
            (0.0, "0"),
            (0.5, "0.5"),
            (2.0 / 3.0, "0.667"),
            (10.0, "10"),
        ] {
            assert_eq!(score(Score::new(number)), shown);
        }
    }

    #[test]
    fn a_moment_names_its_zone() {
        let at = "2026-11-24T09:12:44.500000Z".parse().unwrap();
        assert_eq!(moment(at), "2026-11-24 09:12:44 UTC");
        assert_eq!(exact_moment(at), "2026-11-24 09:12:44.500");
    }
}
