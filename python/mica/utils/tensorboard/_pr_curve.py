"""Counts for curves of precision over recall."""


def counts(labels, predictions, num_thresholds, weights=None):
    """True and false positives and negatives, precision and recall at equally spaced thresholds."""
    import numpy

    weights = 1.0 if weights is None else weights
    labels, predictions = labels.reshape(-1).astype(bool), predictions.reshape(-1)
    buckets = numpy.minimum((predictions * (num_thresholds - 1)).astype(int), num_thresholds - 1)
    spread = numpy.broadcast_to(weights, labels.shape)
    positive = numpy.bincount(buckets[labels], weights=spread[labels], minlength=num_thresholds)
    negative = numpy.bincount(buckets[~labels], weights=spread[~labels], minlength=num_thresholds)
    tp, fp = positive[::-1].cumsum()[::-1], negative[::-1].cumsum()[::-1]
    tn, fn = fp[0] - fp, tp[0] - tp
    tiny = 1e-7
    precision = numpy.maximum(tiny, tp) / numpy.maximum(tiny, tp + fp)
    recall = numpy.maximum(tiny, tp) / numpy.maximum(tiny, tp + fn)
    return tp, fp, tn, fn, precision, recall
