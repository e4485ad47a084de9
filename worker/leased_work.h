#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "proto/fleet/link.h"
#include "worker/slot_pool.h"

namespace macaw::worker {

// What the answer to a request for work hands to this node: whose it is, which model it needs, and
// how it is given back. Pure functions, but for GiveBack.

// A server may ask for the clients that this node registered with, and for nobody else's rows.
absl::Status CheckPlaces(const fleet::LeaseReply& reply, uint64_t clients);

// The model of the lease's work; null: it has none.
const fleet::Blob* ModelOf(const fleet::LeaseReply& reply);

// All of the lease's work, as what was not begun.
Unbegun WorkOf(const fleet::LeaseReply& reply);

// Gives leased work back. A lost message costs one lease's time.
void GiveBack(fleet::FleetLink& link, SessionId session, const Unbegun& work);

}  // namespace macaw::worker
