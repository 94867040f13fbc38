//! Write-back that fails.

use super::fault::WriteBackFailure;
use super::names::NodeId;
use super::node::Node;
use super::world::World;

/// While pages are forgotten, one in this many counted calls drops them.
const DROPS_ONE_IN: u64 = 24;

impl World {
    pub(super) fn fail_some_write_back(&mut self) {
        let nodes = self.nodes.iter_mut().filter(|(_, node)| !node.is_in_memory);
        let dirty = nodes.filter_map(|(id, node)| node.is_dirty().then_some(*id));
        let dirty: Vec<NodeId> = dirty.collect();
        if dirty.is_empty() {
            return;
        }
        let id = dirty[self.memory.index(dirty.len())];
        let node = self.nodes.entry(id).or_default();
        node.fail_write_back(&mut self.memory);
        // A later sync reports it, once.
        node.has_unreported = true;
        self.trace.event(&format!("write-back of {} fails", self.names.text(id)));
        self.after_failed_write_back(id);
    }

    pub(super) fn fail_sync(&mut self, id: NodeId) {
        let node = self.nodes.entry(id).or_default();
        node.fail_write_back(&mut self.chance);
        // The error of this sync reports what failed before, too.
        node.has_unreported = false;
        self.after_failed_write_back(id);
    }

    fn after_failed_write_back(&mut self, id: NodeId) {
        self.write_back_failures += 1;
        match self.medium.failure {
            WriteBackFailure::KeepsPages => {}
            WriteBackFailure::ShutsDown => {
                self.is_shut_down = true;
                self.trace.event("the file system shuts down");
            }
            WriteBackFailure::DropsPages => self.node(id).drop_forgotten(),
        }
    }

    pub(super) fn drop_pages(&mut self) {
        self.nodes.values_mut().for_each(Node::drop_forgotten);
        self.trace.event("the system drops clean pages");
    }

    pub(super) fn drop_some_pages(&mut self) {
        if self.nodes.values().any(Node::has_forgotten) && self.memory.is(1, DROPS_ONE_IN) {
            self.drop_pages();
        }
    }
}
