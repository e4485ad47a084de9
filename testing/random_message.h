#pragma once

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "core/random.h"
#include "macaw/v1/fleet.pb.h"
#include "proto/wire/convert.h"
#include "testing/fake_handler.h"
#include "testing/other_value.h"

namespace macaw::wire {

// Fills every field of a message, by reflection, with random values that its conversion accepts. A
// field that a conversion forgets then shows as a difference, even if the field is added later.
class RandomMessage {
 public:
  explicit RandomMessage(uint64_t seed) : stream_({.seed = seed}) {}

  template <typename Message>
  Message Make() {
    Message message;
    Fill(message);
    return message;
  }

 private:
  void Fill(google::protobuf::Message& message) {
    using google::protobuf::FieldDescriptor;
    if (message.GetDescriptor() == v1::Blob::descriptor()) {
      fleet::Blob blob = fleet::RandomBlob(1 + stream_.Below(200), stream_.NextU64());
      for (uint64_t n = stream_.Below(8) < 6 ? 0 : 1 + stream_.Below(2); n > 0; --n) {
        fleet::Blob form = fleet::RandomBlob(1 + stream_.Below(50), stream_.NextU64());
        blob.compact.push_back(
            {n == 1 ? Digest() : blob.digest, form.digest, form.size, form.bytes});
      }
      if (blob.compact.empty() && stream_.Below(8) == 0) {
        for (int part = 0; part < 2; ++part)
          blob.parts.push_back(fleet::RandomBlob(1 + stream_.Below(50), stream_.NextU64()));
      }
      static_cast<v1::Blob&>(message) =
          ToWire(blob, InlineRule{.max_inline = stream_.Below(2) * 1000});
      return;
    }
    if (message.GetDescriptor() == v1::RunPlan::descriptor()) {
      static_cast<v1::RunPlan&>(message) = ToWire(Plan());
      return;
    }
    // The columns of a message of columns have one length.
    const auto* const type = message.GetDescriptor();
    const bool columns =
        type == v1::Assignments::descriptor() || type == v1::ClientRecords::descriptor();
    const uint64_t rows = 1 + stream_.Below(3);
    const auto* reflection = message.GetReflection();
    for (int i = 0; i < message.GetDescriptor()->field_count(); ++i) {
      const FieldDescriptor* field = message.GetDescriptor()->field(i);
      if (field->real_containing_oneof() != nullptr) continue;
      if (field->is_repeated()) {
        for (uint64_t n = columns ? rows : 1 + stream_.Below(3); n > 0; --n)
          Set(message, reflection, field);
      } else {
        Set(message, reflection, field);
      }
    }
    for (int i = 0; i < message.GetDescriptor()->real_oneof_decl_count(); ++i) {
      const auto* choice = message.GetDescriptor()->oneof_decl(i);
      const auto* field = choice->field(static_cast<int>(stream_.Below(choice->field_count())));
      if (field->name() == "part_blob") field = choice->field(0);  // conversions see it resolved
      Set(message, reflection, field);
    }
    if (auto* request = dynamic_cast<v1::RegisterRequest*>(&message)) {
      *request->mutable_table() =
          ToWire(fleet::RandomBlob(8 + 4 * request->clients(), 1), InlineRule{.max_inline = 1000});
    }
  }

  // A plan in which about half of the keys are not at their defaults.
  RunPlan Plan() {
    RunPlan plan;
    for (const settings::Field<RunPlan>& field : PlanSection().fields()) {
      const std::optional<settings::Value> other = settings::OtherValue(field, plan);
      if (other.has_value() && stream_.Below(2) == 0) field.set(plan, *other);
    }
    plan.algorithm.parameters = {{"mu", stream_.Uniform()}, {"rule", std::string("median")}};
    return plan;
  }

  void Set(google::protobuf::Message& message, const google::protobuf::Reflection* reflection,
           const google::protobuf::FieldDescriptor* field) {
    using google::protobuf::FieldDescriptor;
    const bool many = field->is_repeated();
    // "end" may not lie before "begin"; everything else is free between 1 and 200.
    // Two columns are left out where they say nothing: multiplicities of one, places that are the
    // client's number.
    const bool above = field->name() == "end" || field->name() == "place";
    const uint64_t least = above ? 201 : field->name() == "multiplicity" ? 2 : 1;
    const uint64_t whole = least + stream_.Below(200);
    const double real = stream_.Uniform() * 1000;
    switch (field->cpp_type()) {
      case FieldDescriptor::CPPTYPE_UINT32:
        many ? reflection->AddUInt32(&message, field, whole)
             : reflection->SetUInt32(&message, field, whole);
        break;
      case FieldDescriptor::CPPTYPE_UINT64:
        many ? reflection->AddUInt64(&message, field, whole)
             : reflection->SetUInt64(&message, field, whole);
        break;
      case FieldDescriptor::CPPTYPE_INT64:
        many ? reflection->AddInt64(&message, field, whole)
             : reflection->SetInt64(&message, field, whole);
        break;
      case FieldDescriptor::CPPTYPE_DOUBLE:
        many ? reflection->AddDouble(&message, field, real)
             : reflection->SetDouble(&message, field, real);
        break;
      case FieldDescriptor::CPPTYPE_BOOL:
        many ? reflection->AddBool(&message, field, whole % 4 != 0)
             : reflection->SetBool(&message, field, whole % 4 != 0);
        break;
      case FieldDescriptor::CPPTYPE_ENUM: {
        const int last = field->enum_type()->value_count() - 1;
        reflection->SetEnumValue(&message, field, 1 + static_cast<int>(stream_.Below(last)));
        break;
      }
      case FieldDescriptor::CPPTYPE_STRING: {
        std::string text(field->type() == FieldDescriptor::TYPE_BYTES ? 32 : 1 + stream_.Below(20),
                         'a');
        for (char& c : text) c = static_cast<char>('a' + stream_.Below(26));
        many ? reflection->AddString(&message, field, text)
             : reflection->SetString(&message, field, text);
        break;
      }
      case FieldDescriptor::CPPTYPE_MESSAGE: {
        google::protobuf::Message& inner = many ? *reflection->AddMessage(&message, field)
                                                : *reflection->MutableMessage(&message, field);
        Fill(inner);
        if (field->is_map()) {  // a key comes once
          const int entry = reflection->FieldSize(message, field);
          inner.GetReflection()->SetString(&inner, field->message_type()->map_key(),
                                           absl::StrCat("key", entry));
        }
        break;
      }
      default:
        FAIL() << "a field type that no message of ours has: " << field->full_name();
    }
  }

  RandomStream stream_;
};

// Calls `visit(type, again)` for every message that has a conversion to a struct and back: `again`
// converts the struct.
template <typename F>
void ForEachConversion(F&& visit) {
  const auto again = [](const auto& value) { return ToWire(value, {.max_inline = 1000}); };
  visit(std::type_identity<v1::RunPlan>(), again);
#define MACAW_VISIT(Struct, Message) visit(std::type_identity<v1::Message>(), again);
  MACAW_FLEET_MESSAGES(MACAW_VISIT)
#undef MACAW_VISIT
}

// The same with an example of each message.
template <typename F>
void ForEachConvertedMessage(RandomMessage& random, F&& visit) {
  ForEachConversion([&]<typename Message>(std::type_identity<Message>, const auto& again) {
    visit(random.Make<Message>(), again);
  });
}

}  // namespace macaw::wire
