#pragma once

#include <string>

#include "server/log/history.h"
#include "server/log/record.h"

namespace macaw::server::log {

// One JSON object in a line, without the newline: "seq", "t" (seconds), "record" (the kind's name),
// then the fields of fields.h by their names. Digests are hexadecimal, fences "epoch.counter". A
// field at its default is there, but for digests that are zero.
// What a later session has undone (history.h) has "undone": true.
std::string JsonOf(const Entry& entry, Standing standing = Standing::kCounts);

}  // namespace macaw::server::log
