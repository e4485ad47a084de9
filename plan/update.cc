#include "plan/update.h"

namespace macaw {

using settings::AboveUpTo;
using settings::AtLeast;

namespace {

// The line is read by algorithms/around/factored.cc.
bool HasRank(const UpdateConfig& update) {
  return update.codec.size() == 1 &&
         (update.codec[0].starts_with("acpsgd") || update.codec[0].starts_with("powersgd"));
}

}  // namespace

settings::Section<UpdateConfig> UpdateSection() {
  using U = UpdateConfig;
  settings::Section<U> f;
  f.Add(
      "codec", &U::codec,
      "compression of what clients send, one step a line: [\"topk 0.01\", \"bits 8\"]; topk "
      "F [all | chunks SIZE], randomk F, threshold T, qsgd S [bucket N], terngrad [clip C], sign, "
      "bits N, bf16, f16; in front of them rotate, and right behind it also sign unbiased; or alone "
      "\"acpsgd RANK\", \"powersgd RANK\" or \"majority STEP\"; default: none");
  f.AddChoice(
       "feedback", &U::feedback, {"auto", "none", "residual", "ef21"},
       "what becomes of that which update.codec drops. residual: the client adds it to its "
       "next update; ef21: the client sends differences to what it sent before, of which the "
       "server keeps the sum; none: it is lost; auto: by codec and cohort")
      .Needs([](const U& update) { return update.on(); }, "update.codec");
  f.Add("residual_decay", &U::residual_decay,
        "factor on a client's residual for each round since it was counted last, but for the "
        "first; 1: it keeps all",
        AboveUpTo(0, 1))
      .Needs([](const U& update) { return update.on(); }, "update.codec")
      .Needs(
          [](const U& update) {
            return update.feedback == "auto" || update.feedback == "residual";
          },
          "update.feedback = \"residual\" (or \"auto\", where that is it)");
  f.Add(
       "adapt", &U::adapt,
       "rounds from one choice of the matrices' ranks to the next, each within half and twice "
       "RANK, so that the bytes are least at the error of RANK everywhere (L-GreCo); 0: RANK stays",
       AtLeast(0))
      .Needs(HasRank, "update.codec = [\"acpsgd RANK\"] or [\"powersgd RANK\"]");
  return f;
}

}  // namespace macaw
