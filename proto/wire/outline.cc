#include "proto/wire/outline.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>
#include <grpcpp/support/proto_buffer_reader.h>

#include "absl/strings/str_cat.h"
#include "proto/wire/refusal.h"

namespace macaw::wire {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedInputStream;

constexpr int kDeepest = 16;  // deeper than any message of ours

// The state of the reading and the counts so far.
struct Reading {
  CodedInputStream& in;
  const uint64_t most;
  Outline outline = {};

  // False: damaged, too deep, or past `most`.
  bool Read(const Descriptor* type, int depth) {
    while (const uint32_t tag = in.ReadTag()) {
      if (!ReadField(type, tag, depth)) return false;
    }
    return in.ConsumedEntireMessage();
  }

  bool ReadField(const Descriptor* type, uint32_t tag, int depth) {
    const int number = WireFormatLite::GetTagFieldNumber(tag);
    const auto wire_type = WireFormatLite::GetTagWireType(tag);
    if (depth == 0 && number == 1 && wire_type == WireFormatLite::WIRETYPE_VARINT)
      return in.ReadVarint64(&outline.session.value);
    if (wire_type != WireFormatLite::WIRETYPE_LENGTH_DELIMITED)
      return WireFormatLite::SkipField(&in, tag);
    uint32_t size = 0;
    if (!in.ReadVarint32(&size)) return false;
    const FieldDescriptor* field = type->FindFieldByNumber(number);
    const bool packed = field != nullptr && field->is_packable();
    if (!packed && ++outline.objects > most) return false;
    if (field == nullptr || field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE)
      return in.Skip(static_cast<int>(size));
    if (depth == kDeepest) return false;
    const auto limit = in.PushLimit(static_cast<int>(size));
    const bool good = Read(field->message_type(), depth + 1) && in.BytesUntilLimit() == 0;
    in.PopLimit(limit);
    return good;
  }
};

}  // namespace

absl::StatusOr<Outline> ReadOutline(const Descriptor& type, const grpc::ByteBuffer& bytes,
                                    uint64_t most_objects) {
  grpc::ByteBuffer view(bytes);  // shares the bytes; the reader needs a buffer that it may change
  grpc::ProtoBufferReader reader(&view);
  CodedInputStream in(&reader);
  Reading reading{.in = in, .most = most_objects};
  const bool good = reading.Read(&type, 0);
  if (reading.outline.objects > most_objects) {
    return Refuse(v1::Refusal::REASON_TOO_LARGE,
                  absl::StrCat(type.name(), " holds more than ", most_objects,
                               " entries, the most that this run can have need of"),
                  type.name());
  }
  if (!good || !reader.status().ok())
    return Malformed(type.name(), absl::StrCat("is not a ", type.full_name()));
  return reading.outline;
}

}  // namespace macaw::wire
