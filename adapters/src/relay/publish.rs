//! Domain events to the `events` queue.

use serde_json::{Map, Value, json};
use shared::transactions::deliveries::Delivery;

use super::Performed;
use crate::outbound::Outbound;

/// Publishes the events and says for each how it came out.
pub(super) async fn publish<E: Outbound>(sink: &E, events: Vec<Delivery>) -> Vec<(Delivery, Performed)> {
    if events.is_empty() {
        return Vec::new();
    }
    let bodies: Vec<(String, String)> = events.iter().map(|event| (event.key.clone(), body(event))).collect();
    let later = |why: String| Performed::Later { delay_s: None, why };
    match sink.publish(&bodies).await {
        Ok(answers) => {
            // A sink that answers too few has not said that the rest arrived.
            let answers =
                answers.into_iter().chain(std::iter::repeat_with(|| Err("the queue did not say whether it took this event".to_owned())));
            events.into_iter().zip(answers).map(|(event, answer)| (event, answer.map_or_else(later, |()| Performed::Done))).collect()
        }
        Err(why) => events.into_iter().map(|event| (event, later(why.clone()))).collect(),
    }
}

/// `{"v":1,"id","type","at","partition",…}`: members without a value are left out.
fn body(event: &Delivery) -> String {
    let mut body = Map::new();
    body.insert("v".into(), json!(1));
    body.insert("id".into(), json!(event.key));
    body.insert("at".into(), json!(event.created_at));
    body.insert("partition".into(), json!(event.partition));
    if let Value::Object(payload) = &event.payload {
        body.extend(payload.iter().filter(|(_, value)| !value.is_null()).map(|(name, value)| (name.clone(), value.clone())));
    }
    Value::Object(body).to_string()
}
