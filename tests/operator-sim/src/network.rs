//! The connections between replicas and the server, which delay, lose, repeat and break.

use std::{io, time::Duration};

use bytes::Bytes;
use fastrand::Rng;
use futures::stream;
use http::{Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody, combinators::UnsyncBoxBody};
use kube::Client;
use kube_batch::replica::with_retry_after;
use serde_json::Value;
use tokio::{
    sync::oneshot,
    time::{Instant, sleep},
};
use tower::{BoxError, ServiceBuilder};

use crate::{
    changes,
    outages::Effect,
    script::Way,
    server::{Answer, failure},
    shared::{Shared, USUAL_DELAY_MS, reset},
    traffic::{Faults, Sent},
    watch::Watch,
};

type Body = UnsyncBoxBody<Bytes, io::Error>;

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Arrives,
    ArrivesTwice,
    LosesRequest,
    LosesAnswer,
    ResetBefore,
    ResetAfter,
    Fails(u16),
}

impl Shared {
    /// A client of the server for the process with this number.
    pub(crate) fn client(&self, process: usize) -> Client {
        let shared = self.clone();
        let service = tower::service_fn(move |request: Request<kube::client::Body>| {
            let shared = shared.clone();
            async move { shared.respond(process, request).await }
        });
        let service = ServiceBuilder::new().and_then(with_retry_after).service(service);
        Client::new(service, "default")
    }

    async fn respond(
        self,
        process: usize,
        request: Request<kube::client::Body>,
    ) -> Result<Response<Body>, BoxError> {
        let (parts, body) = request.into_parts();
        let body = body.collect().await?.to_bytes();
        let sent = Sent {
            process,
            method: parts.method.to_string(),
            path: parts.uri.path().to_owned(),
            query: parts.uri.query().unwrap_or_default().to_owned(),
            body: serde_json::from_slice(&body).unwrap_or(Value::Null),
        };
        if sent.query.contains("watch=true") {
            return self.watch(sent).await;
        }
        let (answers, answer) = oneshot::channel();
        // A request that was sent may arrive even if its answer is no longer waited for.
        tokio::spawn(async move {
            let (shared, process) = (self.clone(), sent.process);
            let Some(answer) = self.carry(sent).await else { return };
            let names_holder = answer.as_ref().is_ok_and(|(_, body)| names_holder(body));
            if answers.send(answer).is_ok() && names_holder {
                shared.lock().set_knows_holder(process);
            }
        });
        match answer.await {
            Ok(answer) => Ok(response(&answer?)?),
            Err(_) => std::future::pending().await,
        }
    }

    /// Carries a request to the server and its answer back; `None` if one of them is lost.
    async fn carry(self, sent: Sent) -> Option<Result<Answer, io::Error>> {
        let (fate, there, back) = {
            let mut world = self.lock();
            world.step();
            world.check_sent(&sent);
            let faults = world.faults(sent.process);
            let fate = fate(&faults, &mut world.rng);
            let longest = USUAL_DELAY_MS + faults.delay_ms;
            let there = Duration::from_millis(world.rng.u64(1..=longest));
            (fate, there, Duration::from_millis(world.rng.u64(1..=longest)))
        };
        let begun = Instant::now();
        sleep(there).await;
        if self.lock().faults(sent.process).is_silent {
            return None;
        }
        self.recreate(&sent, Way::There);
        let answer = match fate {
            Fate::LosesRequest => return None,
            Fate::ResetBefore => return Some(Err(reset())),
            Fate::Fails(code) => failure(code, "injected"),
            Fate::Arrives | Fate::ArrivesTwice | Fate::LosesAnswer | Fate::ResetAfter => {
                self.arrive(&sent, fate, begun.elapsed()).await?
            }
        };
        self.recreate(&sent, Way::Back);
        self.notify();
        if fate == Fate::ResetAfter {
            return Some(Err(reset()));
        }
        sleep(back).await;
        let is_lost = fate == Fate::LosesAnswer || self.lock().faults(sent.process).is_silent;
        (!is_lost).then_some(Ok(answer))
    }

    /// Makes the pod of a binding or an eviction again, if it is the turn of that.
    fn recreate(&self, sent: &Sent, way: Way) {
        let mut world = self.lock();
        if let Some(key) = world.take_recreated(sent, way) {
            changes::recreate_pod(&mut world, &key);
        }
    }

    /// The answer of the server to a request that has arrived; `None` if there is none.
    async fn arrive(&self, sent: &Sent, fate: Fate, sent_ago: Duration) -> Option<Answer> {
        let effect = self.lock().outages.effect_on(sent);
        if effect == Some(Effect::Hangs) {
            return None;
        }
        if let Some(answer) = effect.and_then(|effect| effect.rejection(sent)) {
            return Some(answer);
        }
        let (before, after) =
            effect.map(|effect| effect.pauses(sent, sent_ago)).unwrap_or_default();
        sleep(before).await;
        let (refusal, wait) = self.lock().admit(sent);
        sleep(wait).await;
        let answer = refusal.unwrap_or_else(|| {
            let mut world = self.lock();
            if fate == Fate::ArrivesTwice {
                world.request(sent);
            }
            world.request(sent)
        });
        self.notify();
        sleep(after).await;
        match effect {
            Some(Effect::HangsLate) => None,
            Some(Effect::FailsLate { code }) => Some(failure(code, "injected")),
            _ => Some(answer),
        }
    }

    async fn watch(self, sent: Sent) -> Result<Response<Body>, BoxError> {
        let delay = {
            let mut world = self.lock();
            world.step();
            let longest = USUAL_DELAY_MS + world.faults(sent.process).delay_ms;
            Duration::from_millis(world.rng.u64(1..=longest))
        };
        sleep(delay).await;
        let effect = self.lock().outages.effect_on(&sent);
        let (before, after) = effect.map(|effect| effect.pauses(&sent, delay)).unwrap_or_default();
        sleep(before + after).await;
        let opened = {
            let mut world = self.lock();
            let faults = world.faults(sent.process);
            if faults.is_silent || world.rng.f64() < faults.loses_request {
                None
            } else if world.rng.f64() < faults.resets {
                return Err(reset().into());
            } else if world.rng.f64() < faults.fails {
                Some(Err(failure(503, "injected")))
            } else {
                match effect {
                    Some(Effect::Hangs | Effect::HangsLate) => None,
                    effect => {
                        let rejection = effect.and_then(|effect| effect.rejection(&sent));
                        Some(rejection.map_or_else(|| Watch::open(&self, &mut world, &sent), Err))
                    }
                }
            }
        };
        match opened {
            None => std::future::pending().await,
            Some(Err(answer)) => Ok(response(&answer)?),
            Some(Ok(watch)) => {
                let frames = stream::unfold(watch, |mut watch| async move {
                    let line = watch.next().await?;
                    Some((line.map(Frame::data), watch))
                });
                let body = StreamBody::new(frames).boxed_unsync();
                Ok(Response::builder().status(200).body(body)?)
            }
        }
    }
}

fn response((code, body): &Answer) -> http::Result<Response<Body>> {
    let mut response = Response::builder().status(*code);
    if *code == 429 {
        response = response.header(http::header::RETRY_AFTER, 1);
    }
    let body = http_body_util::Full::from(body.to_string()).map_err(|never| match never {});
    response.body(body.boxed_unsync())
}

fn fate(faults: &Faults, rng: &mut Rng) -> Fate {
    let mut draw = rng.f64();
    let mut is = |probability: f64| {
        draw -= probability;
        draw < 0.0
    };
    if is(faults.loses_request) {
        Fate::LosesRequest
    } else if is(faults.loses_answer) {
        Fate::LosesAnswer
    } else if is(faults.resets / 2.0) {
        Fate::ResetBefore
    } else if is(faults.resets / 2.0) {
        Fate::ResetAfter
    } else if is(faults.repeats) {
        Fate::ArrivesTwice
    } else if is(faults.fails) {
        Fate::Fails([429, 500, 503, 504][rng.usize(0..4)])
    } else {
        Fate::Arrives
    }
}

/// Whether an answer is a lease that someone holds.
fn names_holder(body: &Value) -> bool {
    body["spec"]["holderIdentity"].as_str().is_some_and(|holder| !holder.is_empty())
}
