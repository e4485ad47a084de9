#include "models/describe_script.h"

#include <ATen/ATen.h>

#include <vector>

#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "core/digest.h"
#include "core/files.h"
#include "core/safetensors.h"
#include "core/status.h"
#include "models/script_module.h"

namespace macaw::models {

absl::Status DescribeScript(const std::string& script, const std::string& out) {
  MACAW_ASSIGN_OR_RETURN(const std::string bytes, ReadFile(script));
  const absl::StatusOr<ScriptContent> content = ReadScriptContent(bytes);
  if (!content.ok()) return Annotate(content.status(), script);
  std::vector<TensorToWrite> tensors;
  std::vector<at::Tensor> values;  // keeps the bytes alive
  for (size_t i = 0; i < content->tensors.size(); ++i) {
    const std::vector<std::string> words = absl::StrSplit(content->tensors[i], ' ');
    values.push_back(content->values[i].to(at::kDouble));
    const at::Tensor& value = values.back();
    tensors.push_back({.name = words[1],
                       .dtype = "F64",
                       .shape = {value.sizes().begin(), value.sizes().end()},
                       .bytes = {static_cast<const std::byte*>(value.const_data_ptr()),
                                 static_cast<size_t>(value.numel()) * sizeof(double)}});
  }
  return WriteSafetensors(out, tensors,
                          {{"tensors", absl::StrJoin(content->tensors, "\n")},
                           {"script_digest", DigestOf(bytes).Hex()}});
}

}  // namespace macaw::models
