#pragma once

#include "proto/wire/convert.h"
#include "proto/wire/field_checks.h"

// What the conversions by lists are made of: the pieces that several messages share, and the checks
// of several fields together. Fill writes a value into a message, Take reads it.
namespace macaw::wire {

void Fill(v1::Fence& m, const Fence& fence, const InlineRule&);
void Fill(v1::Attempt& m, const Attempt& attempt, const InlineRule&);
void Fill(v1::SharedMemory& m, const fleet::SharedPlace& place, const InlineRule&);
void Fill(v1::Blob& m, const fleet::Blob& blob, const InlineRule& rule);
void Fill(v1::RunPlan& m, const RunPlan& plan, const InlineRule&);

absl::Status Take(const v1::Fence& m, Fence& fence, InlineBytes);
absl::Status Take(const v1::Attempt& m, Attempt& attempt, InlineBytes);
absl::Status Take(const v1::SharedMemory& m, fleet::SharedPlace& place, InlineBytes);
absl::Status Take(const v1::Blob& m, fleet::Blob& blob, InlineBytes inline_bytes);
absl::Status Take(const v1::RunPlan& m, RunPlan& plan, InlineBytes);

// What a message's fields must be together. Most messages have no such rule.
template <typename Message, typename T>
void CheckTogether(const Message&, const T&, FieldChecks&) {}
void CheckTogether(const v1::RegisterRequest&, const fleet::RegisterRequest& request,
                   FieldChecks& f);
void CheckTogether(const v1::EvaluationTask&, const fleet::EvaluationTask& task, FieldChecks& f);
void CheckTogether(const v1::LeaseReply&, const fleet::LeaseReply& reply, FieldChecks& f);
void CheckTogether(const v1::CommitRequest& m, const fleet::CommitRequest&, FieldChecks& f);
void CheckTogether(const v1::BeginUploadRequest&, const fleet::UploadOffer& offer, FieldChecks& f);

}  // namespace macaw::wire
