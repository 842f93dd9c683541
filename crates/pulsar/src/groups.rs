//! The groups of a connection by place.

use std::rc::Rc;

use pharos_broker::feed::Group;
use smallvec::SmallVec;

/// Groups at places that stay theirs while they are here; free places are used again. Most connections have one.
#[derive(Default)]
pub(crate) struct Groups {
    places: SmallVec<[Option<Rc<Group>>; 1]>,
    free: Vec<u32>,
}

impl Groups {
    /// Takes a group in and returns its place.
    pub(crate) fn add(&mut self, group: Rc<Group>) -> u32 {
        if let Some(place) = self.free.pop()
            && let Some(slot) = self.places.get_mut(place as usize)
        {
            *slot = Some(group);
            return place;
        }
        self.places.push(Some(group));
        u32::try_from(self.places.len() - 1).unwrap_or(u32::MAX)
    }

    pub(crate) fn get(&self, place: u32) -> Option<Rc<Group>> {
        self.places.get(place as usize)?.clone()
    }

    /// Lets a group go.
    pub(crate) fn remove(&mut self, place: u32) {
        if let Some(slot) = self.places.get_mut(place as usize)
            && slot.take().is_some()
        {
            self.free.push(place);
        }
    }

    /// Lets all go.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
}
