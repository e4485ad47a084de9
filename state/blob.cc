#include "state/blob.h"

#include <array>
#include <bit>
#include <cstring>
#include <utility>

#include "core/digest.h"
#include "core/status.h"

namespace macaw::state {
namespace {

static_assert(std::endian::native == std::endian::little,
              "blobs are written as they lie in memory");

struct Header {
  uint64_t checksum = 0;  // XXH3-64 of everything after this field
  std::array<char, 8> magic = {'m', 'a', 'c', 'a', 'w', 'c', 's', 't'};
  uint32_t format = 1;
  uint32_t epoch = 0;
  uint64_t counter = 0;
  uint64_t client = 0;
  uint64_t payload = 0;  // bytes after the header
  std::array<uint8_t, 32> schema{};
  std::array<uint8_t, 48> reserved{};
};
static_assert(sizeof(Header) == kBlobHeader);

uint64_t PayloadBytes(const StateSchema& schema) {
  uint64_t bytes = 0;
  for (const LayoutPtr& item : schema) bytes += item->bytes();  // each a multiple of 64
  return bytes;
}

}  // namespace

Digest SchemaDigest(const StateSchema& schema) {
  Digester digester;
  digester.Add(absl::string_view("macaw client state schema")).Add(uint64_t{schema.size()});
  for (const LayoutPtr& item : schema) digester.Add(std::as_bytes(std::span(item->digest().bytes)));
  return digester.Finish();
}

uint64_t BlobBytes(const StateSchema& schema) { return sizeof(Header) + PayloadBytes(schema); }

std::optional<Attempt> NameIn(std::span<const std::byte> header) {
  Header read;
  if (header.size() < sizeof(read)) return std::nullopt;
  std::memcpy(&read, header.data(), sizeof(read));
  if (read.magic != Header().magic) return std::nullopt;
  return Attempt{ClientId(read.client), {read.epoch, read.counter}};
}

absl::StatusOr<BlobHeader> ReadHeader(std::span<const std::byte> blob) {
  const std::optional<Attempt> version = NameIn(blob);
  if (!version.has_value()) return absl::DataLossError("this is not a client state");
  Header read;
  std::memcpy(&read, blob.data(), sizeof(read));
  BlobHeader header{.version = *version,
                    .format = read.format,
                    .checksum = read.checksum,
                    .payload = read.payload};
  header.schema.bytes = read.schema;
  return header;
}

std::string Describe(const Attempt& version) {
  return absl::StrCat("client ", version.client.value, ", state version ", version.fence.epoch, ".",
                      version.fence.counter);
}

absl::Status Missing(const Attempt& version) {
  return absl::NotFoundError(
      absl::StrCat(Describe(version),
                   ": not in the store; check that this node uses the store that the run "
                   "began with, or go back to a checkpoint that does not need it"));
}

absl::Status Overwriting(const Attempt& version) {
  return absl::AlreadyExistsError(absl::StrCat(
      Describe(version), ": stored already with other bytes; versions are never overwritten"));
}

absl::StatusOr<AlignedBuffer> EncodeBlob(const Attempt& version,
                                         std::span<const ConstVectorView> items,
                                         const StateSchema& schema) {
  const auto refuse = [&version](absl::string_view why) {
    return absl::InvalidArgumentError(absl::StrCat(Describe(version), ": ", why));
  };
  if (items.size() != schema.size()) {
    return refuse(absl::StrCat("has ", items.size(), " vectors, the schema ", schema.size()));
  }
  for (size_t i = 0; i < items.size(); ++i) {
    const bool fits =
        !items[i].empty() &&
        (items[i].layout == schema[i].get() || items[i].layout->digest() == schema[i]->digest()) &&
        items[i].bytes.size() == schema[i]->bytes();
    if (!fits)
      return refuse(absl::StrCat("vector ", i,
                                 " does not have the schema's layout, or is not in host memory"));
  }
  AlignedBuffer blob = AlignedBuffer::Unset(BlobBytes(schema));  // every byte is written below
  Header header;
  header.epoch = version.fence.epoch;
  header.counter = version.fence.counter;
  header.client = version.client.value;
  header.payload = PayloadBytes(schema);
  header.schema = SchemaDigest(schema).bytes;
  std::byte* out = blob.bytes().data();
  std::memcpy(out, &header, sizeof(header));
  out += sizeof(header);
  for (const ConstVectorView& item : items) {
    std::memcpy(out, item.bytes.data(), item.bytes.size());
    out += item.bytes.size();
  }
  header.checksum = Checksum(std::as_const(blob).bytes().subspan(sizeof(header.checksum)));
  std::memcpy(blob.bytes().data(), &header.checksum, sizeof(header.checksum));
  return blob;
}

absl::StatusOr<ClientState> OpenBlob(BlobPtr blob, const Attempt& version,
                                     const StateSchema& schema) {
  const auto damaged = [&version](absl::string_view what) {
    return absl::DataLossError(absl::StrCat(Describe(version), ": ", what));
  };
  const std::span<const std::byte> bytes = blob->bytes();
  Header header;
  const Header expected;
  if (bytes.size() < sizeof(header))
    return damaged(absl::StrCat("the blob was cut to ", bytes.size(), " bytes"));
  std::memcpy(&header, bytes.data(), sizeof(header));
  if (header.magic != expected.magic || header.format != expected.format) {
    return damaged("the blob is not a client state that this program can read");
  }
  if (header.checksum != Checksum(bytes.subspan(sizeof(header.checksum)))) {
    return damaged("the blob's checksum does not match: it was damaged or cut");
  }
  if (header.client != version.client.value ||
      Fence{header.epoch, header.counter} != version.fence) {
    return damaged(absl::StrCat(
        "the blob is of ", Describe({ClientId(header.client), {header.epoch, header.counter}})));
  }
  if (header.schema != SchemaDigest(schema).bytes || header.payload != PayloadBytes(schema) ||
      bytes.size() != sizeof(header) + header.payload) {
    return damaged("the blob belongs to another model or algorithm");
  }
  ClientState state;
  uint64_t offset = sizeof(header);
  for (const LayoutPtr& item : schema) {
    state.items.push_back({item.get(), bytes.subspan(offset, item->bytes())});
    offset += item->bytes();
  }
  state.keep_alive = std::move(blob);
  return state;
}

}  // namespace macaw::state
