#include <google/protobuf/stubs/logging.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "aggregation/exact_sum.h"
#include "core/random.h"
#include "macaw/v1/fleet.pb.h"
#include "proto/fleet/client_table.h"
#include "proto/fleet/vector_codec.h"
#include "proto/wire/chunk.h"
#include "proto/wire/convert.h"
#include "proto/wire/outline.h"
#include "proto/wire/part_blob.h"
#include "proto/wire/refusal.h"
#include "testing/random_message.h"
#include "tests/fuzz/targets.h"

namespace macaw::fuzz {
namespace {

std::span<const std::byte> InputBytes(absl::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

std::string TextOf(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::shared_ptr<const AlignedBuffer> BufferOf(absl::string_view bytes) {
  auto buffer = std::make_shared<AlignedBuffer>(bytes.size());
  std::ranges::copy(InputBytes(bytes), buffer->bytes().begin());
  return buffer;
}

// ---- messages: the first byte says which

template <typename Message, typename Again>
bool FeedMessage(absl::string_view bytes, const Again& again) {
  Message message;
  if (!message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return false;
  const auto value = wire::FromWire(message);
  if (!value.ok()) {
    MACAW_FUZZ_EXPECT(wire::ReasonOf(value.status()) != v1::Refusal::REASON_UNSPECIFIED);
    return false;
  }
  // What was accepted can be sent on.
  MACAW_FUZZ_EXPECT(wire::FromWire(Message(again(*value))).ok());
  return true;
}

bool FeedMessages(absl::string_view bytes) {
  const google::protobuf::LogSilencer quiet;  // it reports every string that is not UTF-8
  bool accepted = false;
  if (bytes.empty()) return false;
  const auto kind = static_cast<unsigned char>(bytes[0]);
  unsigned char k = 0;
  wire::ForEachConversion([&]<typename Message>(std::type_identity<Message>, const auto& again) {
    if (k++ == kind) accepted = FeedMessage<Message>(bytes.substr(1), again);
  });
  return accepted;
}

std::vector<std::string> Messages() {
  std::vector<std::string> examples;
  wire::RandomMessage random(1);
  char k = 0;
  wire::ForEachConversion([&]<typename Message>(std::type_identity<Message>, const auto&) {
    examples.push_back(std::string(1, k++) + random.Make<Message>().SerializeAsString());
  });
  return examples;
}

// ---- before a message is parsed

bool FeedOutline(absl::string_view bytes) {
  const auto* const type = v1::CommitRequest::descriptor();
  const auto outline = wire::ReadOutline(*type, wire::FromString(std::string(bytes)), 1000);
  if (!outline.ok()) {
    MACAW_FUZZ_EXPECT(wire::ReasonOf(outline.status()) != v1::Refusal::REASON_UNSPECIFIED);
    return false;
  }
  MACAW_FUZZ_EXPECT(outline->objects <= 1000);
  const google::protobuf::LogSilencer quiet;
  v1::CommitRequest message;
  if (message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())))
    MACAW_FUZZ_EXPECT(message.session() == outline->session.value);
  return true;
}

std::vector<std::string> Commits() {
  wire::RandomMessage random(2);
  return {random.Make<v1::CommitRequest>().SerializeAsString(),
          random.Make<v1::CommitRequest>().SerializeAsString()};
}

bool FeedPart(absl::string_view bytes) {
  const google::protobuf::LogSilencer quiet;
  v1::Part part;
  if (!wire::ParsePartBlob(InputBytes(bytes), /*max_clients=*/100, &part).ok()) return false;
  MACAW_FUZZ_EXPECT(wire::CheckClients(part, 100).ok());
  const auto value = wire::FromWire(part);
  if (value.ok()) MACAW_FUZZ_EXPECT(value->included.size() + value->left_out.size() <= 100);
  return value.ok();
}

std::vector<std::string> Parts() {
  wire::RandomMessage random(3);
  return {random.Make<v1::Part>().SerializeAsString()};
}

// ---- blobs

// The first byte says where the bytes are cut into slices, as the network cuts them.
bool FeedChunk(absl::string_view bytes) {
  if (bytes.empty()) return false;
  const size_t cut = std::min<size_t>(static_cast<unsigned char>(bytes[0]), bytes.size() - 1);
  bytes.remove_prefix(1);
  const grpc::Slice slices[] = {{bytes.data(), cut}, {bytes.data() + cut, bytes.size() - cut}};
  const auto chunk = wire::DecodeChunk(grpc::ByteBuffer(slices, 2));
  if (!chunk.ok()) {
    MACAW_FUZZ_EXPECT(wire::ReasonOf(chunk.status()) != v1::Refusal::REASON_UNSPECIFIED);
    return false;
  }
  std::string data;
  for (const auto piece : chunk->data) data += TextOf(piece);
  MACAW_FUZZ_EXPECT(data.size() == chunk->size);
  v1::Chunk message;
  if (!message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return false;
  MACAW_FUZZ_EXPECT(message.data() == data && message.offset() == chunk->offset);
  return true;
}

std::vector<std::string> Chunks() {
  const fleet::Blob blob = fleet::RandomBlob(50, 4);
  return {std::string(1, '\x05') + wire::ToString(wire::EncodeChunk(blob.bytes, 0, blob.size,
                                                                    blob.digest, SessionId(9))),
          std::string(1, '\0') + wire::ToString(wire::EncodeChunk(blob.bytes, 8, 20, Digest{}))};
}

// A table for as many clients as the first byte says.
bool FeedTable(absl::string_view bytes) {
  if (bytes.empty()) return false;
  const auto clients = static_cast<unsigned char>(bytes[0]);
  const auto table = fleet::ClientTable::Decode(InputBytes(bytes.substr(1)), clients);
  if (!table.ok()) return false;
  MACAW_FUZZ_EXPECT(table->clients() == clients);
  const AlignedBuffer again = table->Encode();
  MACAW_FUZZ_EXPECT(TextOf(again.bytes()) == bytes.substr(1));
  return true;
}

std::vector<std::string> Tables() {
  const auto example = [](const fleet::ClientTable& table) {
    const AlignedBuffer bytes = table.Encode();
    return std::string(1, static_cast<char>(table.clients())) + TextOf(bytes.bytes());
  };
  return {example({.rows = {4, 0, 7}}),
          example({.rows = {4, 1}, .tokens = {400, 2}, .names = {"phone-7", "lab-3"}})};
}

const std::array<LayoutPtr, 2>& Layouts() {
  static const auto* const layouts = new std::array<LayoutPtr, 2>{
      *ParameterLayout::Make({{"0.weight", {3, 5}}, {"0.bias", {3}}}, DType::kF32),
      ParameterLayout::Scalars("tau", 1, DType::kF64)};
  return *layouts;
}

std::vector<FlatVector> Vectors() {
  std::vector<FlatVector> vectors;
  for (const LayoutPtr& layout : Layouts()) vectors.emplace_back(layout);
  vectors[0].As<float>()[1] = 0.5F;
  vectors[1].As<double>()[0] = -2;
  return vectors;
}

bool FeedVectors(absl::string_view bytes) {
  const auto buffer = BufferOf(bytes);
  const auto views = fleet::DecodeVectors(buffer->bytes(), Layouts());
  if (!views.ok()) return false;
  const AlignedBuffer again = fleet::EncodeVectors(*views);
  MACAW_FUZZ_EXPECT(again.size() == bytes.size());
  return true;
}

std::vector<std::string> EncodedVectors() {
  const std::vector<FlatVector> vectors = Vectors();
  const std::vector<ConstVectorView> views = {vectors[0].view(), vectors[1].view()};
  const AlignedBuffer bytes = fleet::EncodeVectors(views);
  return {TextOf(bytes.bytes())};
}

// One channel of each reduction.
const std::vector<aggregation::ChannelSpec>& Channels() {
  static const auto* const channels = [] {
    auto* all = new std::vector<aggregation::ChannelSpec>();
    for (const auto reduction :
         {aggregation::Reduction::kWeightedMean, aggregation::Reduction::kFixedSum,
          aggregation::Reduction::kMax, aggregation::Reduction::kCollect}) {
      all->push_back({.name = "v", .layout = Layouts()[1], .reduction = reduction, .bound = 100});
      all->back().name += std::to_string(all->size());
    }
    return all;
  }();
  return *channels;
}

constexpr aggregation::GridOrder kOrder{
    .max_weight = 8, .total_weight = 20, .max_multiplicity = 1, .total_multiplicity = 3};

bool FeedSum(absl::string_view bytes) {
  auto sum = aggregation::ExactSum::Decode(BufferOf(bytes), Channels(), kOrder);
  if (!sum.ok()) return false;
  MACAW_FUZZ_EXPECT(sum->multiplicity() <= kOrder.total_multiplicity);
  auto root = *aggregation::ExactSum::Make(Channels(), kOrder);
  if (root.Merge(*std::move(sum)).ok()) (void)std::move(root).Report();
  return true;
}

std::vector<std::string> Sums() {
  auto sum = *aggregation::ExactSum::Make(Channels(), kOrder);
  FlatVector vector(Layouts()[1]);
  vector.As<double>()[0] = 1.25;
  const std::vector<ConstVectorView> values(Channels().size(), std::as_const(vector).view());
  for (const uint64_t client : {3, 5})
    (void)sum.Add({.client = ClientId(client), .weight = 2, .values = values});
  const AlignedBuffer bytes = sum.Encode();
  return {TextOf(bytes.bytes())};
}

}  // namespace

std::vector<Target> WireTargets() {
  return {{"messages", FeedMessages, Messages},
          {"outline", FeedOutline, Commits},
          {"part", FeedPart, Parts},
          {"chunk", FeedChunk, Chunks},
          {"client_table", FeedTable, Tables},
          {"vectors", FeedVectors, EncodedVectors},
          {"sums", FeedSum, Sums}};
}

}  // namespace macaw::fuzz
