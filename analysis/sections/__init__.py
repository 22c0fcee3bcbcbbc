"""What a report says beside the tables and figures of training: the verdict, evaluations, corpora, and errors."""
