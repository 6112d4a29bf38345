// The values that the store keeps, as plain structs. Their byte formats are in storage/README.md.
#pragma once

#include "storage/job.h"
#include "storage/job_id.h"
#include "storage/ledger.h"
#include "storage/line.h"
#include "storage/money.h"
