// The CUDA runtime as the backend uses it, with the hooks of mica::Backend.
#pragma once

#include "backends/cuda/context.h"
#include "mica/backend.h"

namespace mica::cuda {

// streams.cpp: the hooks of mica::Backend.
Stream stream_of_thread(int index);
void set_stream(Stream stream);
Stream new_stream(int index, int priority);
bool stream_done(Stream stream);
void queue_what_is_put_off();  // by a compiled function: before whatever orders streams
void synchronize_stream(Stream stream);
Event new_event(int index, bool timing);
void free_event(Event event);
void record_event(Event event, Stream stream);
void wait_event(Stream stream, Event event);
bool event_done(Event event);
void synchronize_event(Event event);
double elapsed_ms(Event from, Event to);

}  // namespace mica::cuda
