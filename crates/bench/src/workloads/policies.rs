//! Appends under each of the log's own sync policies.

use anyhow::Result;
use palisade::SyncPolicy;

use super::burst::{APPENDS_A_STEP, appends};
use crate::form::Form;
use crate::log::Log;
use crate::outcome::Outcome;
use crate::plan::Plan;

/// Appends for one round to a log with the form's policy.
pub(super) fn measure(log: Box<dyn Log>, plan: &Plan) -> Result<Outcome> {
    // An append that is a call of the operating system takes much longer than the clock.
    let count = match plan.form {
        Form::Policy(SyncPolicy::Always | SyncPolicy::Os) => 1,
        _ => APPENDS_A_STEP,
    };
    appends(log, plan, count)
}
