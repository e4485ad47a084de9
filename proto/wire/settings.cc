#include "proto/wire/settings.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/unknown_field_set.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "proto/wire/refusal.h"

namespace macaw::wire {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

std::vector<const FieldDescriptor*> SetFields(const Message& message) {
  std::vector<const FieldDescriptor*> fields;
  message.GetReflection()->ListFields(message, &fields);
  return fields;
}

bool IsSection(const FieldDescriptor& field) {
  return field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE && !field.is_repeated();
}

void AddSettings(const Message& message, const std::string& prefix,
                 std::vector<std::string>& settings) {
  for (const FieldDescriptor* field : SetFields(message)) {
    const std::string name = absl::StrCat(prefix, field->name());
    if (IsSection(*field)) {
      AddSettings(message.GetReflection()->GetMessage(message, field), name + ".", settings);
    } else {
      settings.push_back(name);
    }
  }
}

bool IsKnown(const std::string& setting, const Descriptor& type) {
  const Descriptor* section = &type;
  const FieldDescriptor* field = nullptr;
  for (const absl::string_view part : absl::StrSplit(setting, '.')) {
    field = section != nullptr ? section->FindFieldByName(std::string(part)) : nullptr;
    if (field == nullptr) return false;
    section = IsSection(*field) ? field->message_type() : nullptr;
  }
  return true;
}

}  // namespace

std::vector<std::string> SettingsIn(const Message& message) {
  std::vector<std::string> settings;
  AddSettings(message, "", settings);
  return settings;
}

absl::Status CheckKnown(const std::vector<std::string>& settings, const Descriptor& type) {
  std::vector<std::string> unknown;
  for (const std::string& setting : settings) {
    if (!IsKnown(setting, type)) unknown.push_back(setting);
  }
  if (unknown.empty()) return absl::OkStatus();
  return Refuse(v1::Refusal::REASON_VERSION,
                absl::StrCat("the run sets what this release does not know: ",
                             CleanText(absl::StrJoin(unknown, ", ")),
                             "; use the server's release here, or leave that out of the run"),
                "run");
}

bool HasUnknownFields(const Message& message) {
  const google::protobuf::Reflection& reflection = *message.GetReflection();
  if (!reflection.GetUnknownFields(message).empty()) return true;
  for (const FieldDescriptor* field : SetFields(message)) {
    if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) continue;
    if (!field->is_repeated()) {
      if (HasUnknownFields(reflection.GetMessage(message, field))) return true;
      continue;
    }
    for (int i = 0; i < reflection.FieldSize(message, field); ++i) {
      if (HasUnknownFields(reflection.GetRepeatedMessage(message, field, i))) return true;
    }
  }
  return false;
}

}  // namespace macaw::wire
