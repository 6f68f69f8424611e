/* ringest: thousands of concurrent requests to Google Cloud Storage over io_uring. This header
 * includes all others. Link with `pkg-config --cflags --libs ringest`. */
#ifndef RINGEST_RINGEST_H
#define RINGEST_RINGEST_H

#include <ringest/checkpoint.h>
#include <ringest/dataset.h>
#include <ringest/metrics.h>
#include <ringest/trace.h>
#include <ringest/upload.h>

#endif
