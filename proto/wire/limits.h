#pragma once

#include <cstddef>
#include <cstdint>

// The numbers both sides of the wire agree on, with what each comes from. docs/guides/networks.md
// says how transfers use them.
namespace macaw::wire {

constexpr uint32_t kProtocolMajor = 1;
constexpr uint32_t kProtocolMinor = 0;

constexpr char kTokenKey[] = "macaw-token";  // metadata key of the caller's token

constexpr size_t kMaxMessageBytes = size_t{4} << 20;      // gRPC's own receive limit, kept
constexpr uint64_t kChunkBytes = uint64_t{1} << 20;       // most payload of one Chunk
constexpr uint64_t kLeastChunkBytes = uint64_t{4} << 10;  // of a Chunk over the slowest connection
// The lowest limit on the rate of a link: below, a chunk takes too long to tell a slow connection
// from a dead one.
constexpr uint64_t kLeastRate = 1000;
// What a server puts into a message over TCP, since it does not know how slow the connection is.
constexpr uint64_t kMaxInlineBytesOnTcp = uint64_t{64} << 10;
// A Part's records beyond this travel as a blob. With sums of kMaxInlineBytes, which is the upper
// limit of ServerOptions::max_inline_bytes, they stay below kMaxMessageBytes.
constexpr size_t kMaxPartBytes = size_t{1} << 20;
constexpr size_t kMaxInlineBytes = size_t{2} << 20;

// What a client sends over a new connection before a call has been answered. A larger message or a
// stream waits for the answer to a small call. Over TLS a server cuts a connection of which it has
// read four times as much before a unary call, or the headers of a stream, with a good certificate.
constexpr size_t kMaxFirstBytes = size_t{32} << 10;

// Names, layer lines, texts of settings: as long as the longest path of Linux. A plan is checked
// for it before its run begins (plan/run_plan.h).
constexpr size_t kMaxNameBytes = 4096;
// Free text, which the sender cuts. An error's message is a header of gRPC, which encodes a byte as
// up to three and takes 8 KiB of headers.
constexpr size_t kMaxTextBytes = 2048;
constexpr size_t kMaxPlanBytes = size_t{1} << 20;  // a plan that an operator submits

}  // namespace macaw::wire
