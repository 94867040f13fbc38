//! A state machine of openraft 0.10 in memory, which the suite needs beside the log.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard};

use futures_util::{Stream, TryStreamExt};
use openraft_010::entry::RaftEntry;
use openraft_010::storage::{EntryResponder, RaftStateMachine};
use openraft_010::type_config::alias::{LogIdOf, SnapshotMetaOf, SnapshotOf, StoredMembershipOf};
use openraft_010::{EntryPayload, OptionalSend, RaftSnapshotBuilder, Snapshot, SnapshotMeta};

openraft_010::declare_raft_types!(
    /// The types of the tests.
    pub(crate) Types: D = String, R = (),
);

#[derive(Debug, Default)]
struct State {
    applied: Option<LogIdOf<Types>>,
    membership: StoredMembershipOf<Types>,
    snapshot: Option<SnapshotMetaOf<Types>>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Machine(Arc<Mutex<State>>);

impl Machine {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }
}

impl RaftSnapshotBuilder<Types> for Machine {
    type SnapshotData = ();

    async fn build_snapshot(&mut self) -> io::Result<SnapshotOf<Types, ()>> {
        let mut state = self.state();
        let meta =
            SnapshotMeta { last_log_id: state.applied, last_membership: state.membership.clone() };
        state.snapshot = Some(meta.clone());
        Ok(Snapshot { meta, snapshot: () })
    }
}

impl RaftStateMachine<Types> for Machine {
    type SnapshotData = ();
    type SnapshotBuilder = Machine;

    async fn applied_state(
        &mut self,
    ) -> io::Result<(Option<LogIdOf<Types>>, StoredMembershipOf<Types>)> {
        let state = self.state();
        Ok((state.applied, state.membership.clone()))
    }

    async fn apply<S>(&mut self, mut entries: S) -> io::Result<()>
    where
        S: Stream<Item = io::Result<EntryResponder<Types>>> + Unpin + OptionalSend,
    {
        while let Some((entry, responder)) = entries.try_next().await? {
            let mut state = self.state();
            state.applied = Some(entry.log_id());
            if let EntryPayload::Membership(membership) = entry.payload {
                state.membership = StoredMembershipOf::<Types>::new(state.applied, membership);
            }
            if let Some(responder) = responder {
                responder.send(());
            }
        }
        Ok(())
    }

    async fn get_snapshot_builder(&mut self) -> Machine {
        self.clone()
    }

    async fn install_snapshot(&mut self, meta: &SnapshotMetaOf<Types>, (): ()) -> io::Result<()> {
        let mut state = self.state();
        state.applied = meta.last_log_id;
        state.membership = meta.last_membership.clone();
        state.snapshot = Some(meta.clone());
        Ok(())
    }

    async fn get_current_snapshot(&mut self) -> io::Result<Option<SnapshotOf<Types, ()>>> {
        let meta = self.state().snapshot.clone();
        Ok(meta.map(|meta| Snapshot { meta, snapshot: () }))
    }
}
