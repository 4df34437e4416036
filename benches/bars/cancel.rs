//! How long a cancel takes.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::http::{Request, StatusCode};
use tower::ServiceExt as _;

use crate::table::{Row, Table, median, ms};
use crate::{Effort, disk, engine, plans};

/// From the request to its reply, which is given once the end of the run is on the disk; of a run
/// whose webhook is on its way to somebody who does not answer.
pub(crate) fn measure(effort: Effort, table: &mut Table) {
    let rounds = effort.of(200, 40);
    let folder = disk::folder();
    let mut bare = disk::Bare::new();
    let (mut times, mut syncs) = (Vec::new(), Vec::new());
    // Connections are taken by the system, and nobody ever reads from them.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/hook", silent.local_addr().unwrap());
    engine::runtime().block_on(async {
        let kit = plans::kit(&[("call", &plans::chain(0, Some(&url)))]);
        let engine = engine::open(folder.path(), kit).await;
        for _ in 0..rounds {
            let run = engine::invoke(&engine.orchestrator, "call").await;
            let request = Request::post(format!("/runs/{run}/cancel"))
                .body(Body::from("{}"))
                .unwrap();
            let started = Instant::now();
            let answer = engine.router.clone().oneshot(request).await.unwrap();
            times.push(started.elapsed());
            assert_eq!(answer.status(), StatusCode::OK);
            syncs.push(bare.sync(4096, 3));
        }
        engine.close().await.unwrap();
    });
    let (time, sync) = (median(&mut times), median(&mut syncs));
    let bar = 2 * sync + Duration::from_millis(1);
    table.add(Row {
        what: format!("cancel, request to reply, median of {rounds}"),
        figure: ms(time),
        bare: format!("sync of 4 KiB: {}", ms(sync)),
        ratio: format!("{:.1} syncs", time.as_secs_f64() / sync.as_secs_f64()),
        bar: format!("≤ 2 syncs + 1 ms = {}", ms(bar)),
        met: Some(time <= bar),
    });
}
