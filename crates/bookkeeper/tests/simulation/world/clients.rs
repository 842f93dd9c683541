//! The writer and the recoveries: what they want done is done, what comes back is told to them.

use super::*;

impl World {
    pub(super) fn with_writer(
        &mut self,
        step: impl FnOnce(&mut Writer, &mut dyn Placement, &mut Vec<WriterEffect>),
    ) {
        let Some(mut writer) = self.writer.take() else {
            return;
        };
        let mut out = Vec::new();
        let names = self.bookies.keys().cloned().collect();
        step(&mut writer, &mut AnyOther(&mut self.random, names), &mut out);
        self.settled = self.settled.max(writer.settled().0);
        self.writer = Some(writer);
        for effect in out {
            self.writer_wants(effect);
        }
    }

    fn writer_wants(&mut self, effect: WriterEffect) {
        match effect {
            WriterEffect::Add(add) => {
                let is_moved = self.stored.segments.len() > 1 && self.is(Mutation::ReplacedWithoutResending);
                let is_first = self.stored.segments[0].ensemble.contains(&add.bookie);
                let ask = Ask::Add {
                    entry: add.entry,
                    body: add.body.to_bytes(),
                    is_recovery: false,
                    is_deferred: self.writer.as_ref().is_some_and(Writer::is_deferring),
                };
                if is_moved && !is_first {
                    // Taken for stored, though it was never sent.
                    let answer = AddAnswer {
                        position: add.position,
                        bookie: add.bookie,
                        entry: add.entry,
                        connection: 0,
                        result: Ok(()),
                    };
                    self.with_writer(|writer, placement, out| writer.on_add(&answer, placement, out));
                    return;
                }
                self.call(Client::Writer, 0, add.position, add.bookie, ask);
            }
            WriterEffect::PutMetadata { metadata, version } => {
                self.put_metadata(Client::Writer, *metadata, version);
            }
            WriterEffect::ForceLater => self.after(50, Event::Forces),
            WriterEffect::Force {
                number,
                position,
                bookie,
            } => {
                self.call(Client::Writer, 0, position, bookie, Ask::Force(number));
            }
            WriterEffect::TellConfirmed { bookie, lac } => {
                let sent = self.writer.as_ref().map_or(lac.0, |writer| writer.next().0 - 1);
                let lac = if self.is(Mutation::TellsWhatWasSent) {
                    EntryId(sent)
                } else {
                    lac
                };
                self.call(Client::Writer, 0, 0, bookie, Ask::TellConfirmed(lac));
            }
            WriterEffect::ResendLater { position, bookie } => {
                self.after(50, Event::Resends(position, bookie));
            }
            WriterEffect::Confirmed { end } => {
                if end.0 <= self.confirmed {
                    self.wrong = Some(format!("confirmed {end:?} after {}", self.confirmed));
                }
                self.confirmed = end.0;
            }
            WriterEffect::Closed => {
                self.closed_by_writer = true;
                let state = self.writer.as_ref().map(|writer| writer.metadata().state);
                self.ends_told.extend(state);
            }
            WriterEffect::Failed(_) => {}
        }
    }

    /// A reader elsewhere asks how far the ledger is confirmed.
    pub(super) fn looks(&mut self) {
        let Some(last) = self.stored.last_segment().cloned() else {
            return;
        };
        self.looks += 1;
        let before = last.first.0.checked_sub(1).map(EntryId);
        self.reader = Some((self.looks, LacRead::new(self.stored.quorum, before)));
        for (position, bookie) in last.ensemble.into_iter().enumerate() {
            self.call(Client::Reader, self.looks, position, bookie, Ask::Lac);
        }
    }

    fn looked(&mut self, look: u32, position: usize, answer: Result<Option<Entry>, CallError>, told: u64) {
        let lac = answer.map(|newest| {
            newest
                .and_then(|entry| entry.header.lac)
                .max(told.checked_sub(1).map(EntryId))
        });
        let Some((_, read)) = self.reader.as_mut().filter(|(number, _)| *number == look) else {
            return;
        };
        if let Some(outcome) = read.on_answer(position, lac) {
            self.reader = None;
            let seen = outcome.ok().flatten().map_or(0, |lac| lac.0 + 1);
            self.seen = self.seen.max(seen);
        }
    }

    pub(super) fn recovers(&mut self) {
        let mut out = Vec::new();
        let mut metadata = self.stored.clone();
        if self.is(Mutation::LastSegmentIsForgotten)
            && let Some(last) = metadata.segments.pop()
        {
            metadata.segments = vec![Segment {
                first: EntryId(0),
                ..last
            }];
        }
        let recovery = Recovery::begin(LEDGER, metadata, Version(self.version), &mut out);
        self.recoveries.push(Some(recovery));
        let number = self.recoveries.len() - 1;
        if !self.is_healed() && self.random.one_in(4) {
            let wait = self.random.below(500) as u64;
            self.after(wait, Event::RecoveryDies);
        }
        self.recovery_wants(number, out);
    }

    fn with_recovery(
        &mut self,
        number: usize,
        step: impl FnOnce(&mut Recovery, &mut dyn Placement, &mut Vec<RecoveryEffect>),
    ) {
        let Some(mut recovery) = self.recoveries.get_mut(number).and_then(Option::take) else {
            return;
        };
        let mut out = Vec::new();
        let names = self.bookies.keys().cloned().collect();
        step(&mut recovery, &mut AnyOther(&mut self.random, names), &mut out);
        self.recoveries[number] = Some(recovery);
        self.recovery_wants(number, out);
    }

    fn recovery_wants(&mut self, number: usize, effects: Vec<RecoveryEffect>) {
        let client = Client::Recovery(number);
        for effect in effects {
            match effect {
                RecoveryEffect::PutMetadata { metadata, version } => {
                    self.put_metadata(client, *metadata, version);
                }
                RecoveryEffect::Fence {
                    attempt,
                    position,
                    bookie,
                } => self.call(client, attempt, position, bookie, Ask::Newest),
                RecoveryEffect::Read {
                    attempt,
                    position,
                    bookie,
                    entry,
                    is_fencing,
                } => self.call(client, attempt, position, bookie, Ask::Read { entry, is_fencing }),
                RecoveryEffect::Add { attempt, add } => {
                    let ask = Ask::Add {
                        entry: add.entry,
                        body: add.body.to_bytes(),
                        is_recovery: true,
                        is_deferred: false,
                    };
                    self.call(client, attempt, add.position, add.bookie, ask);
                }
                RecoveryEffect::Done(Ok(metadata)) => {
                    self.ends_told.push(metadata.state);
                    self.recoveries[number] = None;
                }
                RecoveryEffect::Done(Err(error)) => {
                    self.recoveries[number] = None;
                    if self.now > LAST {
                        self.wrong = Some(format!("cannot be recovered when all is healed: {error}"));
                    } else if self.random.one_in(2) {
                        self.after(100, Event::Recovers);
                    }
                }
            }
        }
    }

    pub(super) fn answered(&mut self, id: u64, raw: Raw, life: u64) {
        // Answered or given up before.
        let Some(call) = self.calls.remove(&id) else {
            return;
        };
        let raw = self.bend(&call.ask, raw);
        let open = |raw: Raw, wanted| -> Result<Option<Entry>, CallError> {
            match raw? {
                Some(body) => Ok(Some(self.digester.open(wanted, &body)?)),
                None => Ok(None),
            }
        };
        let (position, attempt) = (call.position, call.attempt);
        let connection = match self.is(Mutation::CrashesAreNotSeen) {
            true => 0,
            false => life,
        };
        let added = |entry, raw: Raw| AddAnswer {
            position,
            bookie: call.bookie.clone(),
            entry,
            connection,
            result: raw.map(drop),
        };
        match (call.client, call.ask) {
            (Client::Writer, Ask::Add { entry, .. }) => {
                let answer = added(entry, raw);
                self.with_writer(|writer, placement, out| writer.on_add(&answer, placement, out));
            }
            (Client::Recovery(number), Ask::Add { entry, .. }) => {
                let answer = added(entry, raw);
                self.with_recovery(number, |recovery, placement, out| {
                    recovery.on_add(attempt, &answer, placement, out);
                });
            }
            (Client::Recovery(number), Ask::Newest) => {
                let answer = open(raw, None);
                self.with_recovery(number, |recovery, _, out| {
                    recovery.on_newest(attempt, position, answer, out);
                });
            }
            (Client::Recovery(number), Ask::Read { entry, .. }) => {
                let answer = open(raw, Some(entry));
                let is_exaggerated = answer == Ok(None) && self.is(Mutation::OneMissingIsEnough);
                let others = if is_exaggerated {
                    0..self.stored.quorum.ensemble()
                } else {
                    0..0
                };
                self.with_recovery(number, |recovery, _, out| {
                    recovery.on_read(attempt, position, entry, answer, out);
                    for position in others {
                        recovery.on_read(attempt, position, entry, Ok(None), out);
                    }
                });
            }
            (Client::Writer, Ask::Force(number)) => {
                let result = raw.map(drop);
                self.with_writer(|writer, _, out| {
                    writer.on_forced(number, position, connection, result, out)
                });
            }
            (Client::Reader, Ask::Lac) => {
                let told = self.bookies.get(&call.bookie).map_or(0, |bookie| bookie.told);
                let answer = open(raw, None);
                self.looked(attempt, position, answer, told);
            }
            _ => {}
        }
    }

    /// A lie that a client with a wrong rule would tell itself.
    fn bend(&self, ask: &Ask, raw: Raw) -> Raw {
        let is_lie = matches!(ask, Ask::Read { .. }) && self.is(Mutation::SilenceIsMissing);
        if is_lie && raw.is_err() { Ok(None) } else { raw }
    }

    pub(super) fn metadata_told(&mut self, client: Client, answer: MetadataAnswer) {
        match client {
            // It writes none.
            Client::Reader => {}
            Client::Writer => self.with_writer(|writer, placement, out| {
                writer.on_metadata(answer, placement, out);
            }),
            Client::Recovery(number) => self.with_recovery(number, |recovery, _, out| {
                recovery.on_metadata(answer, out);
            }),
        }
    }
}
