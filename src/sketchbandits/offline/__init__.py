"""What another policy would have earned, estimated from logged decisions."""
