#pragma once

#include <cstddef>
#include <cstdint>

// The numbers both sides of the wire agree on. README.md says where each comes from.
namespace macaw::wire {

constexpr uint32_t kProtocolMajor = 1;
constexpr uint32_t kProtocolMinor = 0;

constexpr char kTokenKey[] = "macaw-token";  // of the metadata that says who calls

constexpr size_t kMaxMessageBytes = size_t{4} << 20;  // gRPC's own receive limit, kept
constexpr size_t kChunkBytes = size_t{1} << 20;       // payload of one Chunk
constexpr size_t kMaxPartBytes = size_t{1} << 20;  // a Part's records beyond this travel as a blob
constexpr size_t kMaxInlineBytes = size_t{2}
                                   << 20;  // what ServerOptions::max_inline_bytes may ask for

constexpr size_t kMaxNameBytes = 4096;  // names, layer lines, parameter texts
constexpr size_t kMaxTextBytes = 2048;  // free text for people: cut by the sender

}  // namespace macaw::wire
