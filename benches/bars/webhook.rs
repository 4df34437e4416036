//! What the engine adds to a webhook.

use std::time::{Duration, Instant};

use axum::body::Bytes;
use axum::http::{HeaderMap, HeaderValue, Method, header};
use ktsu::receiver::Receiver;
use ktsu_egress::{Client, EgressPolicy, EgressRequest};

use crate::table::{Row, Table, median, ms};
use crate::{Effort, disk, engine, plans};

/// A run of one webhook, request to reply, less the time of the same call without an engine.
pub(crate) fn measure(effort: Effort, table: &mut Table) {
    let rounds = effort.of(200, 40);
    let folder = disk::folder();
    let mut bare = disk::Bare::new();
    let (mut whole, mut effect, mut syncs) = (Vec::new(), Vec::new(), Vec::new());
    engine::runtime().block_on(async {
        let receiver = Receiver::start(8).await.unwrap();
        let url = format!("{}/hook", receiver.url());
        let kit = plans::kit(&[("call", &plans::chain(0, Some(&url)))]);
        let engine = engine::open(folder.path(), kit).await;
        let policy = EgressPolicy {
            allow: Vec::new(),
            loopback: true,
        };
        let client = Client::new(&policy).unwrap();
        for _ in 0..rounds {
            let started = Instant::now();
            engine::reply(&engine, "call").await;
            whole.push(started.elapsed());
            let started = Instant::now();
            client.send(request(&url)).await.unwrap();
            effect.push(started.elapsed());
            syncs.push(bare.sync(4096, 3));
        }
        engine.close().await.unwrap();
    });
    let (whole, effect, sync) = (median(&mut whole), median(&mut effect), median(&mut syncs));
    let overhead = whole.saturating_sub(effect);
    let bar = 3 * sync + Duration::from_millis(1);
    table.add(Row {
        what: format!(
            "webhook step beyond its effect ({}), median of {rounds}",
            ms(effect)
        ),
        figure: ms(overhead),
        bare: format!("sync of 4 KiB: {}", ms(sync)),
        ratio: format!("{:.1} syncs", overhead.as_secs_f64() / sync.as_secs_f64()),
        bar: format!("≤ 3 syncs + 1 ms = {}", ms(bar)),
        met: Some(overhead <= bar),
    });
}

fn request(url: &str) -> EgressRequest {
    let json = HeaderValue::from_static("application/json");
    EgressRequest {
        method: Method::POST,
        url: url.to_owned(),
        headers: HeaderMap::from_iter([(header::CONTENT_TYPE, json)]),
        body: Bytes::from(plans::params().to_string()),
        timeout: Duration::from_secs(10),
        keep: 1024,
        is_to_itself: false,
    }
}
