"""Where torch keeps helpers of AOT autograd that backends import."""
