// Every actor's typed interface, one comment a message. INTERNAL: sent by the actor to itself.
#pragma once

#include <caf/all.hpp>
#include <vector>

#include "actors/messages.h"

namespace batchmill {

using frame_atom = caf::atom_constant<caf::atom("frame")>;
using sync_atom = caf::atom_constant<caf::atom("sync")>;
using flush_atom = caf::atom_constant<caf::atom("flush")>;
using next_atom = caf::atom_constant<caf::atom("next")>;
using tick_atom = caf::atom_constant<caf::atom("tick")>;
using lines_atom = caf::atom_constant<caf::atom("lines")>;
using refresh_atom = caf::atom_constant<caf::atom("refresh")>;
using prepare_atom = caf::atom_constant<caf::atom("prepare")>;
using pull_atom = caf::atom_constant<caf::atom("pull")>;
using plan_atom = caf::atom_constant<caf::atom("plan")>;
using returned_atom = caf::atom_constant<caf::atom("returned")>;
using changed_atom = caf::atom_constant<caf::atom("changed")>;
using work_atom = caf::atom_constant<caf::atom("work")>;
using ready_atom = caf::atom_constant<caf::atom("ready")>;
using lost_atom = caf::atom_constant<caf::atom("lost")>;
using replaced_atom = caf::atom_constant<caf::atom("replaced")>;
using done_atom = caf::atom_constant<caf::atom("done")>;

// Waits for the disk in the intake's stead, on a thread of its own.
using LogSyncerActor = caf::typed_actor<
    // Answers when all that was written before is durable: empty, or why the disk takes no more.
    caf::replies_to<sync_atom>::with<std::string>>;

// Takes uploads: frames in, durable lines and acks out.
using IntakeActor = caf::typed_actor<
    // A client's open, data, end or abort.
    caf::reacts_to<frame_atom, PeerMessage>,
    // Closes uploads that have been idle too long.
    caf::reacts_to<tick_atom>,
    // INTERNAL: write what has gathered.
    caf::reacts_to<flush_atom>>;

// Answers clients' requests (status, results, …) and changes jobs (cancel, pause, resume).
using ControlActor = caf::typed_actor<
    // A client's request.
    caf::reacts_to<frame_atom, PeerMessage>,
    // INTERNAL: the next one that waits.
    caf::reacts_to<next_atom>>;

// Looks after the store as a whole.
using CaretakerActor = caf::typed_actor<
    // A client's backup, compact or prune.
    caf::reacts_to<frame_atom, PeerMessage>,
    // INTERNAL: remove jobs past their retention.
    caf::reacts_to<tick_atom>>;

// Tokenizes part of a chunk.
using PreparingWorkerActor =
    caf::typed_actor<caf::replies_to<prepare_atom, ChunkPart>::with<PreparedPart>>;

// Turns durable lines into plan entries or failures, in the order of each job's lines.
using PreparerActor = caf::typed_actor<
    // The job has lines that are not prepared, or its upload has ended.
    caf::reacts_to<lines_atom, JobId>,
    // INTERNAL: prepare the next chunk.
    caf::reacts_to<prepare_atom>,
    // INTERNAL: look at the next page of the plan for entries of models that have changed.
    caf::reacts_to<refresh_atom>>;

// Owns the cursors: hands plan entries to the devices that ask.
using DispatcherActor = caf::typed_actor<
    // A device has room.
    caf::reacts_to<pull_atom, WorkRequest>,
    // The plan has new entries. INTERNAL too: try again after the disk was full.
    caf::reacts_to<plan_atom>,
    // These lines have results now.
    caf::reacts_to<done_atom, std::vector<LineKey>>,
    // These lines came back from a device without a result and may run again.
    caf::reacts_to<returned_atom, std::vector<LineKey>>,
    // The job was paused, resumed or ended.
    caf::reacts_to<changed_atom, JobId>,
    // This device is not used any more: its lines run elsewhere.
    caf::reacts_to<lost_atom, std::uint32_t>,
    // Another device that runs the model of this fingerprint has taken the place of a lost one.
    caf::reacts_to<replaced_atom, std::uint32_t, std::string>,
    // Answers true once all that was sent before has been dealt with.
    caf::replies_to<flush_atom, bool>::with<bool>>;

// A device's mailbox: hands work to the thread that owns its Engine.
using DeviceWorkerActor = caf::typed_actor<
    // Lines to run.
    caf::reacts_to<work_atom, std::vector<WorkItem>>,
    // The job has ended: drop its lines.
    caf::reacts_to<changed_atom, JobId>,
    // INTERNAL: the device's thread has failed; the actor quits.
    caf::reacts_to<done_atom, std::string>>;

// The only one that writes results of devices.
using WriterActor = caf::typed_actor<
    // A device has ended a line.
    caf::reacts_to<done_atom, LineCompletion>,
    // INTERNAL: write what has gathered.
    caf::reacts_to<flush_atom>,
    // Writes what has gathered and answers when it is durable: true, or false if it cannot be.
    caf::replies_to<flush_atom, bool>::with<bool>>;

}  // namespace batchmill
